"""Django settings of the relayer. Every value has a default that works; production sets the environment (docs/settings.md)."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from relayer_site import env
from relayer_site.console import UNFOLD  # noqa: F401 - a setting
from relayer_site.documentation import REST_FRAMEWORK, SPECTACULAR_SETTINGS  # noqa: F401 - settings
from relayer_site.embedded import EmbeddedPostgres
from relayer_site.logging import logging_config

BASE_DIR = env.ROOT
RELAYER_VAR = env.VAR
RELAYER_ROLE = env.text("RELAYER_ROLE", "maintenance")

# --- Django ---------------------------------------------------------------------------------------------------------------------------

SECRET_KEY = env.text("SECRET_KEY") or env.kept_secret(RELAYER_VAR / "secret_key")
DEBUG = env.flag("DEBUG", False)
ALLOWED_HOSTS = env.items("ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.items("CSRF_TRUSTED_ORIGINS", [])
ROOT_URLCONF = "relayer_site.urls"
WSGI_APPLICATION = "relayer_site.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True
LANGUAGE_CODE = "en"

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    # Workers need the admin's models only; looking for its pages would double their start-up time.
    "django.contrib.admin.apps.SimpleAdminConfig" if RELAYER_ROLE == "worker" else "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_q",
    "django_prometheus",
    "requests_app",
    "workers",
    "relayer_site",
]

MIDDLEWARE = [
    "relayer_site.middleware.EdgeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# --- Static files: served by whitenoise, from the packages themselves unless `collectstatic` has been run for production ---------------

STATIC_URL = "static/"
STATIC_MANIFEST = env.flag("STATIC_MANIFEST", False)
STATIC_ROOT = BASE_DIR / "staticfiles" if STATIC_MANIFEST else None  # whitenoise warns of a folder that is not there
WHITENOISE_USE_FINDERS = not STATIC_MANIFEST
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_MANIFEST
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# --- Transport security: on by one switch, because the devnet and a TLS-terminating proxy speak plain HTTP to us -----------------------

BEHIND_TLS = env.flag("BEHIND_TLS", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_TLS else None
SECURE_SSL_REDIRECT = BEHIND_TLS
SECURE_REDIRECT_EXEMPT = [r"^(liveness|healthz|version|metrics)$"]
SECURE_HSTS_SECONDS = env.number("SECURE_HSTS_SECONDS", 31_536_000 if BEHIND_TLS else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = BEHIND_TLS
SECURE_HSTS_PRELOAD = BEHIND_TLS
SESSION_COOKIE_SECURE = BEHIND_TLS
CSRF_COOKIE_SECURE = BEHIND_TLS
SESSION_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
# The desk's door. The address of a client that came through proxies is what they say of it, not what anybody writes before.
TRUSTED_PROXIES = env.number("TRUSTED_PROXIES", 1 if BEHIND_TLS else 0)
DESK_LOGIN_FAILURES = env.number("DESK_LOGIN_FAILURES", 5)
DESK_LOGIN_FAILURES_PER_ADDRESS = env.number("DESK_LOGIN_FAILURES_PER_ADDRESS", 50)
DESK_LOGIN_WINDOW_SECONDS = env.seconds("DESK_LOGIN_WINDOW_SECONDS", 900)
DATA_UPLOAD_MAX_MEMORY_SIZE = env.number("MAX_BODY_BYTES", 10 * 1024 * 1024)

# --- Database: DATABASE_URL, or the embedded server ------------------------------------------------------------------------------------

# Per role (design 5.1 no. 8). A worker's idle_in_transaction limit is below the lease: a stopped holder must let its rows go.
DATABASE_ROLE_OPTIONS = {
    "web": {"statement_timeout": "5s", "idle_in_transaction_session_timeout": "10s", "lock_timeout": "2s"},
    "worker": {"statement_timeout": "10s", "idle_in_transaction_session_timeout": "5s", "lock_timeout": "2s"},
    "maintenance": {},
}
if RELAYER_ROLE not in DATABASE_ROLE_OPTIONS:
    raise ImproperlyConfigured(f"RELAYER_ROLE must be one of {', '.join(DATABASE_ROLE_OPTIONS)}")
DATABASE_URL = env.database_url("DATABASE_URL")


def _database() -> dict[str, Any]:
    database: dict[str, Any] = dict(env.env.db_url_config(DATABASE_URL or EmbeddedPostgres(RELAYER_VAR).url()))
    database["ENGINE"] = "relayer_site.pooled" if DATABASE_URL else "relayer_site.postgres"
    limits = " ".join(f"-c {name}={value}" for name, value in DATABASE_ROLE_OPTIONS[RELAYER_ROLE].items())
    given = dict(database.get("OPTIONS", {}))
    database["HOST"] = given.pop("host", database.get("HOST", ""))  # a socket directory comes as ?host=
    options = {"target_session_attrs": "read-write", **given}
    options.update(application_name=f"relayer-{RELAYER_ROLE}", connect_timeout=5)
    options.update(keepalives_idle=5, keepalives_interval=2, keepalives_count=3)
    if limits:
        options["options"] = f"{given.get('options', '')} {limits}".strip()
    if RELAYER_ROLE == "web":
        # Only the web role pools: under a q2 cluster the pool's sockets would be shared by forked processes.
        size, threads = env.number("WEB_POOL_SIZE", 20), env.number("WEB_THREADS", 32)
        # Not every thread may wait for a connection: while the database is away a few answer at once, /liveness among them. All the
        # others may: a pool that has rested has `kept` connections, and a burst on all threads is no reason to refuse anybody.
        kept = min(4, size)
        waiting = max(1, threads - kept)
        options["pool"] = {"min_size": kept, "max_size": size, "max_waiting": waiting, "timeout": 5, "max_idle": 300}
        # The named statements are long: planning them anew cost a third of a request's CPU (bench/http.py).
        options["prepare_threshold"] = 2
        # relayer_site.pooled looks at the sockets instead.
        return {**database, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False, "OPTIONS": options}
    return {**database, "CONN_MAX_AGE": 300, "CONN_HEALTH_CHECKS": True, "OPTIONS": options}


DATABASES = {"default": _database()}

# --- django-q2: carries the shifts and the clock, never the work itself ----------------------------------------------------------------

SHIFT_SECONDS = env.seconds("SHIFT_SECONDS", 50)
SHIFT_SLOTS = env.number("SHIFT_SLOTS", 2)
_TIMEOUT = int(SHIFT_SECONDS) + 15
Q_CLUSTER: dict[str, Any] = {
    "name": "relayer",  # the signing salt of every task: fixed for ever
    "orm": "default",
    "broker_class": "workers.cluster.broker.SurvivingOrm",
    "workers": SHIFT_SLOTS + 1,
    "timeout": _TIMEOUT,
    "retry": max(180, 2 * _TIMEOUT),
    "poll": 0.5,  # successors are fetched a second ahead; only a start or a rescue waits for a poll
    "queue_limit": 4,
    "bulk": 1,
    "guard_cycle": 0.5,
    "recycle": 50,
    "save_limit": -1,
    "catch_up": False,
    "ack_failures": True,
    "max_attempts": 1,
    "ALT_CLUSTERS": {},
}
# The turns of each cluster's shifts: classes, or functions that return lists of turns.
SHIFT_TURNS = {
    "settle": [
        "workers.sharing.sharing_turns",
        "workers.drain.DrainTurn",
        "workers.webhooks.WebhookTurn",  # the last one: at the end of a shift it may wait for receivers
    ],
    "sweep": ["workers.sweep.duties"],
}
# Each process group has its own queue key (Q_CLUSTER_NAME=settle-<host>-<n>); q2 looks its name up here.
if os.environ.get("Q_CLUSTER_NAME"):
    Q_CLUSTER["ALT_CLUSTERS"] = {os.environ["Q_CLUSTER_NAME"]: {}}

# --- The relayer -----------------------------------------------------------------------------------------------------------------------

RELAYER_DEPLOYMENT = Path(env.text("RELAYER_DEPLOYMENT") or RELAYER_VAR / "devnet" / "deployment.json")
_deployment = env.deployment(RELAYER_DEPLOYMENT)
_gateway: dict[str, Any] = _deployment.get("gateway", {})
_hosts: list[dict[str, Any]] = _deployment.get("host_chains", [])

GATEWAY_CHAIN_ID = env.number("GATEWAY_CHAIN_ID", int(_gateway.get("chain_id", 0)))
GATEWAY_RPC_URLS = env.items("GATEWAY_RPC_URLS", _gateway.get("rpc_urls", []))
DECRYPTION_ADDRESS = env.text("DECRYPTION_ADDRESS", _gateway.get("decryption", ""))
INPUT_VERIFICATION_ADDRESS = env.text("INPUT_VERIFICATION_ADDRESS", _gateway.get("input_verification", ""))
FEE_TOKEN_ADDRESS = env.text("FEE_TOKEN_ADDRESS", _gateway.get("fee_token", ""))
PAYMENT_ADDRESS = env.text("PAYMENT_ADDRESS", _gateway.get("payment", ""))
PAYMENT_TOKENS: list[dict[str, Any]] = env.document("PAYMENT_TOKENS", _gateway.get("payment_tokens", []))
SIGNER_MIN_BALANCE_WEI = env.number("SIGNER_MIN_BALANCE_WEI", 10**15)
FEE_TOKEN_MIN = env.number("FEE_TOKEN_MIN", 0)
GATEWAY_START_BLOCK = env.number("GATEWAY_START_BLOCK", int(_gateway.get("start_block", 0)))
GATEWAY_FINALITY_DEPTH = env.number("GATEWAY_FINALITY_DEPTH", 0)
GATEWAY_FEE_CEILING_WEI = env.number("GATEWAY_FEE_CEILING_WEI", 500_000_000_000)
STUCK_SECONDS = env.seconds("STUCK_SECONDS", 60)
GATEWAY_SIGNER_KEYS = env.items("GATEWAY_SIGNER_KEYS", _deployment.get("relayer_signer_keys", []))
HOST_CHAINS: list[dict[str, Any]] = env.entries(
    "HOST_CHAINS",
    [
        {
            "chain_id": host["chain_id"],
            "url": host["rpc_url"],
            "acl_address": host["acl"],
            "protocol_config_address": host.get("protocol_config"),
            "kms_generation_address": host.get("kms_generation"),
        }
        for host in _hosts
    ],
    ("chain_id", "url", "acl_address"),
)
HOST_RPC_URLS = env.pairs("HOST_RPC_URLS")
HOST_CHAINS = [{**host, "url": HOST_RPC_URLS.get(str(host["chain_id"]), host["url"])} for host in HOST_CHAINS]
PROTOCOL_CONFIG_ADDRESS = env.text(
    "PROTOCOL_CONFIG_ADDRESS", (_hosts[0].get("protocol_config") or "") if _hosts else ""
)
KMS_GENERATION_ADDRESS = env.text("KMS_GENERATION_ADDRESS", (_hosts[0].get("kms_generation") or "") if _hosts else "")
USER_DECRYPT_SHARES_THRESHOLD = env.number("USER_DECRYPT_SHARES_THRESHOLD", int(_deployment.get("kms_threshold", 9)))

API_AUTH = env.text("API_AUTH", "required")
API_DEFAULT_ACCOUNT = env.text("API_DEFAULT_ACCOUNT", "default")
ADMIN_CONFIG = env.flag("ADMIN_CONFIG", False)
LONG_POLL_PLACES = env.number("LONG_POLL_PLACES", 24)
V2_SIGNATURE_CHECK = env.flag("V2_SIGNATURE_CHECK", True)
V3_SIGNATURE_CHECK = env.flag("V3_SIGNATURE_CHECK", True)
SIGNATURE_VERIFIER = env.text("SIGNATURE_VERIFIER", "workers.chain.precheck.Verifier")
CHAIN_PROBER = env.text("CHAIN_PROBER", "workers.chain.probe.Prober")
ERC1271_GAS_LIMIT = env.number("ERC1271_GAS_LIMIT", 100_000)

# First values of runtime settings (requests_app/runtime.py): the database and `relayer_setting` win.
RETRY_AFTER: dict[str, Any] = env.document("RETRY_AFTER", {})
USER_DECRYPT_ADDITIONAL_SHARES = env.number("USER_DECRYPT_ADDITIONAL_SHARES", 0)
USER_DECRYPT_ADDITIONAL_SHARES_TIMEOUT_SECS = env.number("USER_DECRYPT_ADDITIONAL_SHARES_TIMEOUT_SECS", 5)
READINESS_CHECKS_PER_CALL = env.number("READINESS_CHECKS_PER_CALL", 200)
READINESS_CALLS_PER_INTERVAL = env.number("READINESS_CALLS_PER_INTERVAL", 50)
API_PORT = env.number("API_PORT", 8000)

QUEUE_CAPACITY = env.number("QUEUE_CAPACITY", 11_000)
QUEUE_SAFETY_MARGIN = env.number("QUEUE_SAFETY_MARGIN", 1_000)
QUEUE_URL = env.text("QUEUE_URL", "")

LEASE_SECONDS = env.seconds(
    "LEASE_SECONDS", 9
)  # with a standby's look the ten seconds after which a frozen holder is replaced
LEASE_HINT = env.flag("LEASE_HINT", True)
JOB_LEASE_SECONDS = env.seconds("JOB_LEASE_SECONDS", 30)
SHIFT_POLL_SECONDS = env.seconds("SHIFT_POLL_SECONDS", 0.05)
SHIFT_PACE_SECONDS = env.seconds("SHIFT_PACE_SECONDS", 0.15)
LISTENER_POLL_SECONDS = env.seconds("LISTENER_POLL_SECONDS", 0.1)
READINESS_INTERVAL_SECONDS = env.seconds("READINESS_INTERVAL_SECONDS", 3)
RPC_CALLS_PER_SECOND = env.number("RPC_CALLS_PER_SECOND", 0)
RPC_TIMEOUT_SECONDS = env.seconds("RPC_TIMEOUT_SECONDS", 10)

QUEUED_DEADLINE_SECONDS = env.seconds("QUEUED_DEADLINE_SECONDS", 1800)
PROCESSING_DEADLINE_SECONDS = env.seconds("PROCESSING_DEADLINE_SECONDS", 1800)
IN_FLIGHT_DEADLINE_SECONDS = env.seconds("IN_FLIGHT_DEADLINE_SECONDS", 600)
RESPONSE_DEADLINE_SECONDS = env.seconds("RESPONSE_DEADLINE_SECONDS", 1800)
PAYMENT_LIFETIME_SECONDS = env.seconds("PAYMENT_LIFETIME_SECONDS", 3600)
PAYMENT_STUCK_SECONDS = env.seconds("PAYMENT_STUCK_SECONDS", 1800)
PAYMENT_LOST_SECONDS = env.seconds("PAYMENT_LOST_SECONDS", 300)
# When a payment is settled for good.
PAYMENT_REQUIRE_FINALIZED = env.flag("PAYMENT_REQUIRE_FINALIZED", True)
PAYMENT_CONFIRMATIONS = env.number("PAYMENT_CONFIRMATIONS", 0)

# Bills: usage of the envelope log, paid by the clients.
BILLING_MERCHANT = env.text("BILLING_MERCHANT", "")
BILLING_TOKEN = env.text("BILLING_TOKEN", "")
BILLING_PAYERS: dict[str, str] = env.document("BILLING_PAYERS", {})
BILLING_LIFETIME_SECONDS = env.seconds("BILLING_LIFETIME_SECONDS", 604_800)

# Final rows leave after these days, with payload, shares, views and history.
RETENTION_ENABLED = env.flag("RETENTION_ENABLED", True)
USER_DECRYPT_RETENTION_DAYS = env.seconds("USER_DECRYPT_RETENTION_DAYS", 7)
PUBLIC_DECRYPT_RETENTION_DAYS = env.seconds("PUBLIC_DECRYPT_RETENTION_DAYS", 365)
INPUT_PROOF_RETENTION_DAYS = env.seconds("INPUT_PROOF_RETENTION_DAYS", 7)

ENVELOPE_BASE_PICODOLLARS = env.number("ENVELOPE_BASE_PICODOLLARS", 1_000_000)
ENVELOPE_PRICES: dict[str, int] = env.document("ENVELOPE_PRICES", {})
CONGESTION_TARGET_MESSAGES = env.number("CONGESTION_TARGET_MESSAGES", 9_000)
CONGESTION_FEE_PICODOLLARS = env.number("CONGESTION_FEE_PICODOLLARS", 10_000)
PUBLISHER_ORIGINATOR = env.number("PUBLISHER_ORIGINATOR", 100)
PUBLISH_WAIT_SECONDS = env.seconds("PUBLISH_WAIT_SECONDS", 5)
PUBLISH_POLL_SECONDS = env.seconds("PUBLISH_POLL_SECONDS", 0.2)
ENVELOPE_MAX_PAYLOAD_BYTES = env.number("ENVELOPE_MAX_PAYLOAD_BYTES", 512 * 1024)
ENVELOPE_RETENTION_ENABLED = env.flag("ENVELOPE_RETENTION_ENABLED", True)
ENVELOPE_BLOB_RETAIN_DAYS = env.number("ENVELOPE_BLOB_RETAIN_DAYS", 0)

# Webhooks: where they may go, how long a receiver may take, when one is given up and what is kept.
WEBHOOK_ALLOWED_HOSTS = env.items("WEBHOOK_ALLOWED_HOSTS", [])
WEBHOOK_PORTS = env.items("WEBHOOK_PORTS", ["443", "8443"])
WEBHOOKS_PER_ACCOUNT = env.number("WEBHOOKS_PER_ACCOUNT", 10)
WEBHOOK_TIMEOUT_SECONDS = env.seconds("WEBHOOK_TIMEOUT_SECONDS", 5)
WEBHOOK_THREADS = env.number("WEBHOOK_THREADS", 16)
WEBHOOK_POLL_SECONDS = env.seconds("WEBHOOK_POLL_SECONDS", 1)
WEBHOOK_ATTEMPTS = env.number("WEBHOOK_ATTEMPTS", 16)
WEBHOOK_EXPIRY_DAYS = env.seconds("WEBHOOK_EXPIRY_DAYS", 3)
WEBHOOK_RETENTION_DAYS = env.seconds("WEBHOOK_RETENTION_DAYS", 7)

BEAT_STALE_SECONDS = env.seconds("BEAT_STALE_SECONDS", 4.5)
HOST_NAME = env.text("RELAYER_HOST_NAME", socket.gethostname())

# --- API, documentation, console, logging: owned by their own modules ------------------------------------------------------------------

LOGGING = logging_config(
    env.text("LOG_LEVEL", "INFO"),
    secrets=[SECRET_KEY, *GATEWAY_SIGNER_KEYS],
)
