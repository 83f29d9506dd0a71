"""The only code that changes the state of a request.

`generic` applies one verb to any rows; `sending` and `answers` hold the set-based steps that change states together with
nonces, attempts, references and shares. Which change is legal stands in `states.TRANSITIONS` alone.
"""
