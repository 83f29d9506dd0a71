"""What each setting means, by group. `relayer_docs --check` fails for a setting without a text and a text without one."""

from __future__ import annotations

from typing import Final

TEXTS: Final[dict[str, dict[str, str]]] = {
    "Place and role": {
        "RELAYER_VAR": "Folder of everything that is kept: embedded database, devnet, secrets made at first start. Default `var/` in the checkout",
        "RELAYER_ROLE": "Which time-outs and pool a process gets: `web`, `worker` or `maintenance`; the commands set it themselves",
        "RELAYER_HOST_NAME": "Name of this machine in leases and heartbeats; its host name by default",
        "APP_NAME": "Name in `/version`",
        "RELAYER_BUILD": "Build in `/version` of a packaged release; read from git in a checkout",
        "LOG_LEVEL": "Level of the product's own loggers",
    },
    "Web": {
        "SECRET_KEY": "Django's signing key. Without it one is made and kept in `RELAYER_VAR/secret_key`",
        "DEBUG": "Django's debug pages; never in production",
        "ALLOWED_HOSTS": "Host names that are answered, separated by commas",
        "CSRF_TRUSTED_ORIGINS": "Origins (with scheme) from which the admin's forms may be sent",
        "BEHIND_TLS": "A proxy terminates TLS and sets `X-Forwarded-Proto`: redirects, HSTS and secure cookies on",
        "SECURE_HSTS_SECONDS": "How long browsers keep to TLS; a year when `BEHIND_TLS` is on, else 0",
        "STATIC_MANIFEST": "Serve static files as collected by `collectstatic` (production images) and not from the packages",
        "MAX_BODY_BYTES": "Largest accepted request body",
        "WEB_POOL_SIZE": "Database connections of one web process",
        "API_HOST": "Address the web server listens on",
        "API_PORT": "Port of the web server; the demo takes a free one when this is not given",
        "WEB_WORKERS": "Web server processes",
        "WEB_THREADS": "Blocking threads of one web server process",
        "API_AUTH": "`required`: every API call needs a key. `optional`: calls without one belong to `API_DEFAULT_ACCOUNT`",
        "API_DEFAULT_ACCOUNT": "The account of calls without a key under `API_AUTH=optional`; `migrate` makes it",
        "ADMIN_CONFIG": "Serve `/admin/config`, which changes runtime settings with an operator's API key",
        "LONG_POLL_PLACES": "Threads of one web process that may long-poll at once",
        "PROMETHEUS_MULTIPROC_DIR": "Folder (emptied at start) through which web processes share their counters",
    },
    "Signatures of user decrypts": {
        "V2_SIGNATURE_CHECK": "Check v2 signatures before anything is queued: a request whose signature is proven bad fails at once and blocks nobody",
        "V3_SIGNATURE_CHECK": "Check v3 signatures before the request is stored",
        "SIGNATURE_VERIFIER": "Class that asks wallet contracts (ERC-1271)",
        "CHAIN_PROBER": "Class that asks every gateway endpoint on a reviewer's demand",
        "ERC1271_GAS_LIMIT": "Gas that a wallet contract may use for its answer",
    },
    "First values of runtime settings": {
        "RETRY_AFTER": "JSON object of Retry-After parameters (`requests_app/runtime.py` names them); `manage.py relayer_setting` changes them while everything runs",
        "USER_DECRYPT_ADDITIONAL_SHARES": "Shares beyond the threshold that a completed user decrypt waits for; 0 = off",
        "USER_DECRYPT_ADDITIONAL_SHARES_TIMEOUT_SECS": "Seconds that it waits for them at most",
        "READINESS_CHECKS_PER_CALL": "Readiness checks in one request to the gateway",
        "READINESS_CALLS_PER_INTERVAL": "Requests to the gateway for repeated readiness checks in one interval, of one worker group",
    },
    "Retention": {
        "RETENTION_ENABLED": "Final requests leave the database, with payload, shares, views and history, when their days are over",
        "USER_DECRYPT_RETENTION_DAYS": "Days that a finished user decrypt is kept",
        "PUBLIC_DECRYPT_RETENTION_DAYS": "Days that a finished public decrypt is kept",
        "INPUT_PROOF_RETENTION_DAYS": "Days that a finished input proof is kept",
    },
    "Database": {
        "DATABASE_URL": "`postgres://…` of a PostgreSQL 14 or newer, reached directly or in session mode. Absent: the embedded server",
        "RELAYER_PG_OPTIONS": "Further options of the embedded server",
    },
    "Gateway and host chains": {
        "RELAYER_DEPLOYMENT": "JSON file with the defaults of this group; the devnet writes it to `RELAYER_VAR/devnet/deployment.json`",
        "GATEWAY_CHAIN_ID": "Chain id of the gateway; another chain behind an endpoint is refused",
        "GATEWAY_RPC_URLS": "JSON-RPC endpoints of the gateway, tried in order",
        "GATEWAY_START_BLOCK": "First block that the listener reads on an empty database",
        "DECRYPTION_ADDRESS": "The Decryption contract on the gateway",
        "INPUT_VERIFICATION_ADDRESS": "The InputVerification contract on the gateway",
        "FEE_TOKEN_ADDRESS": "The token in which the gateway takes its fee",
        "GATEWAY_FEE_CEILING_WEI": "Most wei a gas that is ever offered on the gateway; a nonce that needs more goes to a person",
        "STUCK_SECONDS": "How long the lowest nonce of a signer may stand still before more is offered for it (60 on an L1, 20 on an L2)",
        "PAYMENT_ADDRESS": "The contract that takes the fee tokens; the signers' allowance for it is watched",
        "PAYMENT_TOKENS": "JSON list of `{address, name, version, symbol, decimals}`: the EIP-3009 tokens in which payments settle on the gateway chain; `name` and `version` are those of the token's EIP-712 domain",
        "SIGNER_MIN_BALANCE_WEI": "A signer with less native money is paused until more has come",
        "FEE_TOKEN_MIN": "A signer with fewer fee tokens, or a smaller allowance, is paused; 0 only raises an alert when there are none",
        "GATEWAY_SIGNER_KEYS": "Private keys of the sending accounts, 0x hex; use `GATEWAY_SIGNER_KEYS_FILE`",
        "HOST_RPC_URLS": "Endpoints that replace those of the deployment file, as `chain_id=url`, separated by commas",
        "HOST_CHAINS": "JSON list of `{chain_id, url, acl_address, protocol_config_address?, kms_generation_address?}`",
        "PROTOCOL_CONFIG_ADDRESS": "The ProtocolConfig contract on the first host chain",
        "KMS_GENERATION_ADDRESS": "The KMSGeneration contract on the first host chain",
        "USER_DECRYPT_SHARES_THRESHOLD": "Shares a user decryption needs when its context names no other number",
        "RPC_CALLS_PER_SECOND": "Reads, and apart from them sends, that one process may make at one endpoint each second; 0 sets no limit. Divide a provider's limit by the number of processes",
        "RPC_TIMEOUT_SECONDS": "How long one JSON-RPC answer may take",
    },
    "Queues, leases, loops": {
        "QUEUE_CAPACITY": "Jobs a queue may hold",
        "QUEUE_SAFETY_MARGIN": "Places kept free below the capacity; beyond, new requests get 429",
        "LEASE_SECONDS": "Length of the leases of signers, listeners, duties and shifts; renewed every third",
        "LEASE_HINT": "Take over at once when the holder's database session is gone, and not only at expiry",
        "JOB_LEASE_SECONDS": "How long a leased job stays hidden from others",
        "SHIFT_SECONDS": "Length of one shift of a worker",
        "SHIFT_SLOTS": "Shifts of one cluster that run at once",
        "SHIFT_POLL_SECONDS": "Pause of a shift that found nothing to do",
        "LISTENER_POLL_SECONDS": "Pause of the listener at the head of the chain",
        "READINESS_INTERVAL_SECONDS": "Time between two readiness checks of one decryption",
        "BEAT_STALE_SECONDS": "Age of a heartbeat at which the watchdog replaces a process group",
    },
    "Envelope log, usage, publication": {
        "ENVELOPE_BASE_PICODOLLARS": "Price of an envelope whose kind has none of its own, in picodollars",
        "ENVELOPE_PRICES": "JSON object: price by envelope kind, in picodollars (1 to 3: request events, 100: published)",
        "CONGESTION_TARGET_MESSAGES": "Envelopes of an originator in 5 minutes up to which there is no congestion fee",
        "CONGESTION_FEE_PICODOLLARS": "Fee for each per cent above that target, at most 100 of them, in picodollars",
        "PUBLISHER_ORIGINATOR": "Originator id of what `POST /v1/envelopes` publishes; one a deployment",
        "PUBLISH_WAIT_SECONDS": "How long `POST /v1/envelopes` waits for its own publication before it answers 202",
        "PUBLISH_POLL_SECONDS": "Pause of the publisher when nothing is staged",
        "ENVELOPE_MAX_PAYLOAD_BYTES": "Largest payload that may be published",
        "ENVELOPE_RETENTION_ENABLED": "Drop bands that are older than their originator keeps and that everybody has read",
        "ENVELOPE_BLOB_RETAIN_DAYS": "Drop payloads after this many days although their rows stay; 0: with their rows",
    },
    "Deadlines of states": {
        "QUEUED_DEADLINE_SECONDS": "`queued` at most this long, then `timed_out`",
        "PROCESSING_DEADLINE_SECONDS": "`processing` at most this long, then `failure` without an attempt, else `needs_review`",
        "IN_FLIGHT_DEADLINE_SECONDS": "`tx_in_flight` without a receipt this long, then the chain is asked, then `needs_review`",
        "RESPONSE_DEADLINE_SECONDS": "`receipt_received` this long, then the chain is asked once more, then `timed_out`",
    },
}

# Read by the code, set by the code (or by tests): nobody configures them.
INTERNAL: Final = frozenset(
    {"Q_CLUSTER_NAME", "RELAYER_TIED", "RELAYER_CRASH_AT", "DJANGO_SETTINGS_MODULE", "PATH", "HOME", "CI"}
)
