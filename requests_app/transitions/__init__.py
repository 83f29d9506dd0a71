"""The only code that changes the state of a request, a payment, or a delivery of a webhook.

`generic` applies one verb to any rows; `sending` and `answers` hold the set-based steps that change states together with
nonces, attempts, references and shares; `intents` moves payments, `deliveries` deliveries. Which change is legal stands in
`states` alone.
"""
