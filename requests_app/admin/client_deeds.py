"""What an operator may do with clients and keys. Every deed has a reason and stays in the admin's log with its author."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest

from requests_app import clients
from requests_app.admin import cells
from requests_app.admin.forms import DeedForm, DeedForms, Input, lock_author, posted_reason, reason_input
from requests_app.admin.page import Secret, Section, Table
from requests_app.models import Account, ApiKey
from requests_app.models.accounts import AccountStatus
from requests_app.store.session import transaction, web_connection

PERMISSION: Final = "requests_app.manage_clients"
SHOWN_ONCE: Final = "Hand it over now. Only its SHA-256 is kept: nobody can show it again."
NEEDS_REASON: Final = "Say why: the reason is part of the history."


def may_manage(request: HttpRequest) -> bool:
    """Whether the person may change clients and keys."""
    return bool(request.user.has_perm(PERMISSION))


def creation_form(request: HttpRequest) -> DeedForm:
    """The form for a new client."""
    name = Input("name", "Name", "a-z 0-9 . _ -, at most 63", value=request.POST.get("name", ""), limit=63)
    text = "Makes an active client and its first key, which is shown once."
    return DeedForm("New client", text, "create", "Make it", [name, reason_input(request.POST.get("reason", ""))])


def create(request: HttpRequest, admin: Any) -> list[Section] | None:
    """Make a client and its key in one transaction: the page that shows the key, or None with a message."""
    name, reason = request.POST.get("name", "").strip(), posted_reason(request)
    if not reason:
        admin.message_user(request, NEEDS_REASON, messages.ERROR)
        return None
    conn = web_connection()
    try:
        with transaction(conn):
            lock_author(conn, request)
            if not clients.create_account(conn, name):
                raise clients.AccountRefused(f"account {name!r} exists already")
            key = clients.issue_key(conn, name)
            account = Account.objects.get(name=name)
            note(request, account, f"made, with key {key.prefix}: {reason}")
    except clients.AccountRefused as error:
        admin.message_user(request, str(error), messages.ERROR)
        return None
    link = cells.link(f"Client {name}", admin.page_url(account))
    return [Secret(f"The key of {name}", SHOWN_ONCE, key.text), Table("Made", ("Client",), [(link,)])]


def carry_out(request: HttpRequest, admin: Any, account: Account) -> Secret | None:
    """Do the POSTed deed; the new key when there is one. Refusals become messages."""
    reason = posted_reason(request)
    if not reason:
        admin.message_user(request, NEEDS_REASON, messages.ERROR)
        return None
    conn = web_connection()
    try:
        with transaction(conn):
            lock_author(conn, request)
            text, key = _do(request, account)
            note(request, account, f"{text}: {reason}")
    except clients.AccountRefused as error:
        admin.message_user(request, str(error), messages.ERROR)
        return None
    admin.message_user(request, f"{account.name}: {text}.", messages.SUCCESS)
    account.refresh_from_db()
    return Secret(f"The new key of {account.name}", SHOWN_ONCE, key.text) if key else None


def _do(request: HttpRequest, account: Account) -> tuple[str, clients.NewKey | None]:
    conn, name = web_connection(), account.name
    prefix = request.POST.get("prefix", "")
    match request.POST.get("deed", ""):
        case "disable" | "enable" as deed:
            status = AccountStatus.DISABLED if deed == "disable" else AccountStatus.ACTIVE
            if not clients.set_status(conn, name, status):
                raise clients.AccountRefused(f"{name} is {status.value} already")
            return f"{deed}d", None
        case "issue":
            key = clients.issue_key(conn, name)
            return f"key {key.prefix} issued", key
        case "rotate":
            key, revoked = clients.rotate_key(conn, name, prefix)
            return f"key {key.prefix} issued, {', '.join(revoked)} revoked", key
        case "revoke":
            return f"key {', '.join(clients.revoke_key(conn, name, prefix or '-'))} revoked", None
        case _:
            raise clients.AccountRefused("this page knows no such deed")


def note(request: HttpRequest, account: Account, text: str) -> None:
    """Write who did it into the admin's log, in the transaction of the deed."""
    LogEntry.objects.create(
        user_id=request.user.pk or 0,
        content_type=ContentType.objects.get_for_model(Account),
        object_id=str(account.pk),
        object_repr=account.name[:200],
        action_flag=CHANGE,
        change_message=text,
    )


def deed_sections(request: HttpRequest, account: Account, keys: Sequence[ApiKey]) -> list[Section]:
    """What may be done now, for those who may, and what was done."""
    sections: list[Section] = []
    if may_manage(request):
        sections.append(DeedForms("What you can do", "takes effect at once", _forms(account, keys)))
    kind = ContentType.objects.get_for_model(Account)
    done = LogEntry.objects.filter(content_type=kind, object_id=str(account.pk)).select_related("user")[:30]
    rows = [(cells.short_moment(e.action_time), e.user.get_username(), cells.wrapped(e.change_message)) for e in done]
    sections.append(
        Table("Done on the desk", ("When", "Who", "What and why"), rows, "Nothing was done here.", note="newest first")
    )
    return sections


def _forms(account: Account, keys: Sequence[ApiKey]) -> list[DeedForm]:
    if account.status != AccountStatus.ACTIVE.value:
        text = "Its valid keys open the door again."
        return [DeedForm("Enable the client", text, "enable", "Enable", [reason_input()], tone="good")]
    valid = [(key.prefix, f"{key.prefix}…") for key in keys if key.revoked_at is None]
    forms = [DeedForm("Issue a further key", "The keys that exist stay valid.", "issue", "Issue", [reason_input()])]
    if valid:
        which = Input("prefix", "Key", kind="select", choices=valid)
        text = "Issues a new key and revokes the chosen one in one transaction."
        forms.append(DeedForm("Rotate a key", text, "rotate", "Rotate", [which, reason_input()], tone="warn"))
        text = "Whoever uses it gets 401 from now on."
        forms.append(DeedForm("Revoke a key", text, "revoke", "Revoke", [which, reason_input()], tone="bad"))
    text = "None of its keys opens the door any more, and rows that were not sent yet are not sent. What is on its way goes on to its end."
    forms.append(DeedForm("Disable the client", text, "disable", "Disable", [reason_input()], tone="bad"))
    return forms
