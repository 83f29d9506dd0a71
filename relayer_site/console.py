"""The admin's look and its sidebar (django-unfold's one setting)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse, reverse_lazy


def _may(permission: str) -> Callable[[HttpRequest], bool]:
    def allowed(request: HttpRequest) -> bool:
        return bool(request.user.has_perm(permission))

    return allowed


def _item(title: str, icon: str, model: str, app: str = "requests_app", **extra: Any) -> dict[str, Any]:
    """A sidebar entry that leads to a model's list and shows only to those who may view it."""
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{app}_{model}_changelist"),
        "permission": _may(f"{app}.view_{model}"),
        **extra,
    }


def _in_ledger(request: HttpRequest) -> bool:
    """Whether the page is one of the ledger's; the balances below it have an entry of their own."""
    here, balances = request.path, reverse("admin:relayer_balances")
    return here.startswith(reverse("admin:requests_app_ledgerentry_changelist")) and not here.startswith(balances)


def _style(request: HttpRequest) -> str:
    return static("relayer/desk.css")


def _favicon(request: HttpRequest) -> str:
    return static("relayer/favicon.svg")


def _script(request: HttpRequest) -> str:
    return static("relayer/desk.js")


NAVIGATION: list[dict[str, Any]] = [
    {
        "items": [
            {"title": "Overview", "icon": "monitoring", "link": reverse_lazy("admin:index")},
            _item("Needs review", "gavel", "reviewcase", badge="requests_app.admin.dashboard.open_review_badge"),
        ],
    },
    {
        "title": "Requests",
        "separator": True,
        "items": [
            _item("User decrypts", "key", "userdecryptrequest"),
            _item("Public decrypts", "lock_open", "publicdecryptrequest"),
            _item("Input proofs", "verified", "inputproofrequest"),
            _item("Shares", "account_tree", "userdecryptshare"),
            _item("Transitions", "timeline", "requesttransition"),
        ],
    },
    {
        "title": "Payments",
        "separator": True,
        "items": [
            _item("Payments", "payments", "paymentintent"),
            _item("Ledger", "account_balance", "ledgerentry", active=_in_ledger),
            {
                "title": "Balances",
                "icon": "balance",
                "link": reverse_lazy("admin:relayer_balances"),
                "permission": _may("requests_app.view_ledgerentry"),
            },
        ],
    },
    {
        "title": "Work",
        "separator": True,
        "items": [
            _item("Jobs", "inbox", "queuejob"),
            _item("Dead letters", "unsubscribe", "deadletter"),
            _item("Decisions", "how_to_vote", "reviewdecision"),
            _item("Commands", "terminal", "command"),
            _item("Leases", "handshake", "execlease"),
            _item("Heartbeats", "ecg_heart", "workerbeat"),
            _item("Runtime settings", "tune", "runtimesetting"),
        ],
    },
    {
        "title": "Chain",
        "separator": True,
        "items": [
            _item("Signers", "draw", "signer"),
            _item("Attempts", "send", "txattempt"),
            _item("Sources and envelopes", "hub", "envelopesource"),
            _item("Conflicts", "report", "envelopeconflict"),
            _item("Chain identities", "fingerprint", "chainidentity"),
        ],
    },
    {
        "title": "Clients",
        "separator": True,
        "items": [
            _item("Accounts", "apartment", "account"),
            _item("API keys", "vpn_key", "apikey"),
            _item("Webhooks", "webhook", "webhook"),
            _item("Webhook deliveries", "outbox", "webhookdelivery"),
        ],
    },
    {
        "title": "Scheduler",
        "separator": True,
        "collapsible": True,
        "items": [
            _item("Schedules", "schedule", "schedule", "django_q"),
            _item("Queued shifts", "pending_actions", "ormq", "django_q"),
            _item("Failed shifts", "error", "failure", "django_q"),
            _item("Finished shifts", "task_alt", "success", "django_q"),
        ],
    },
    {
        "title": "People",
        "separator": True,
        "collapsible": True,
        "items": [_item("Users", "person", "user", "auth"), _item("Roles", "groups", "group", "auth")],
    },
]

UNFOLD: dict[str, Any] = {
    "LOGIN": {"form": "relayer_site.login.LoginForm"},
    "SITE_TITLE": "Relayer desk",
    "SITE_HEADER": "Relayer desk",
    "SITE_SUBHEADER": "Operations, times in UTC",
    "SITE_SYMBOL": "swap_horizontal_circle",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _favicon}],
    "SITE_URL": None,
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "BORDER_RADIUS": "6px",
    "DASHBOARD_CALLBACK": "requests_app.admin.dashboard.context",
    "STYLES": [_style],
    "SCRIPTS": [_script],
    "COLORS": {
        "primary": {
            "50": "oklch(97.1% .013 233)",
            "100": "oklch(94.3% .026 233)",
            "200": "oklch(89.2% .053 231)",
            "300": "oklch(81.6% .095 229)",
            "400": "oklch(72.4% .125 231)",
            "500": "oklch(62.5% .130 235)",
            "600": "oklch(52.6% .120 239)",
            "700": "oklch(45.2% .104 240)",
            "800": "oklch(39.3% .087 240)",
            "900": "oklch(34.4% .072 241)",
            "950": "oklch(26.0% .056 242)",
        },
    },
    "SIDEBAR": {"show_search": False, "show_all_applications": False, "navigation": NAVIGATION},
}
