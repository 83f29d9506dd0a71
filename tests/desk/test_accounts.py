"""Clients, keys, roles and the demo's seed."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import psycopg
import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import close_old_connections
from django.test import Client
from django.urls import reverse

from requests_app import clients, models
from requests_app.clients import AccountRefused, key_digest
from requests_app.models.accounts import AccountStatus
from requests_app.roles import GRANTS, sync_roles
from requests_app.store.accounts import valid_key
from requests_app.store.session import connect
from tests.envelopes.scene import until_waiting


def test_a_key_is_stored_as_digest_only(conn: psycopg.Connection) -> None:
    assert clients.create_account(conn, "acme")
    key = clients.issue_key(conn, "acme")
    row = models.ApiKey.objects.get(prefix=key.prefix)
    assert bytes(row.digest) == key_digest(key.text)
    assert key.text.startswith(key.prefix)
    stored = json.dumps([str(value) for value in models.ApiKey.objects.values().get(pk=row.pk).values()])
    assert key.text.removeprefix(key.prefix) not in stored


def test_keys_only_for_an_account_that_exists_and_is_active(conn: psycopg.Connection) -> None:
    with pytest.raises(AccountRefused):
        clients.issue_key(conn, "nobody")
    assert not models.Account.objects.exists(), "issuing never creates the account"
    clients.create_account(conn, "acme")
    assert clients.set_status(conn, "acme", AccountStatus.DISABLED)
    with pytest.raises(AccountRefused):
        clients.issue_key(conn, "acme")
    assert not models.ApiKey.objects.exists()


def test_issuing_waits_for_a_disabling_under_way(two_conns: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    """The account is locked by the issuing statement: it sees the disabling that commits first."""
    first, second = two_conns
    clients.create_account(first, "acme")
    outcome: list[object] = []

    def issue() -> None:
        try:
            outcome.append(clients.issue_key(second, "acme"))
        except AccountRefused as error:
            outcome.append(error)

    with first.transaction():
        clients.set_status(first, "acme", AccountStatus.DISABLED)
        thread = threading.Thread(target=issue)
        thread.start()
        until_waiting(first, second)
        assert outcome == [], "it must wait"
    thread.join(60)
    assert isinstance(outcome[0], AccountRefused)


def test_rotation_leaves_exactly_the_new_key(conn: psycopg.Connection) -> None:
    clients.create_account(conn, "acme")
    clients.create_account(conn, "other")
    foreign = clients.issue_key(conn, "other")
    olds = [clients.issue_key(conn, "acme") for _ in range(2)]
    new, revoked = clients.rotate_key(conn, "acme")
    assert sorted(revoked) == sorted(key.prefix for key in olds)
    assert valid_key(conn, "acme", key_digest(new.text))
    assert not any(valid_key(conn, "acme", key_digest(key.text)) for key in olds)
    assert valid_key(conn, "other", key_digest(foreign.text))


def test_rotating_an_unknown_prefix_gives_no_key(conn: psycopg.Connection) -> None:
    clients.create_account(conn, "acme")
    clients.issue_key(conn, "acme")
    with pytest.raises(AccountRefused):
        clients.rotate_key(conn, "acme", "rk_unknown0")
    assert models.ApiKey.objects.count() == 1


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a" * 64, "<b>", "ä"])
def test_names_that_are_refused(name: str, conn: psycopg.Connection) -> None:
    with pytest.raises(AccountRefused):
        clients.create_account(conn, name)


def test_the_command_shows_a_key_once_and_a_dry_run_none(
    transactional_db: None, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("relayer_account", "--json", "create", "acme")
    created = json.loads(capsys.readouterr().out)
    assert valid(created["key"])
    call_command("relayer_account", "--json", "issue", "acme", "--dry-run")
    assert "key" not in json.loads(capsys.readouterr().out)
    assert models.ApiKey.objects.count() == 1
    call_command("relayer_account", "list", "--json")
    listed = capsys.readouterr().out
    assert "rk_" not in listed
    assert [(one["name"], one["operator"]) for one in json.loads(listed)] == [("acme", False)]
    call_command("relayer_account", "operator", "acme")
    call_command("relayer_account", "list")
    assert "operator" in capsys.readouterr().out.splitlines()[-1]
    call_command("relayer_account", "--json", "revoke", "acme")
    assert not valid(created["key"])
    with pytest.raises(CommandError, match="no valid key"):
        call_command("relayer_account", "revoke", "acme")
    with pytest.raises(CommandError, match="exists already"):
        call_command("relayer_account", "create", "acme")


def valid(text: str) -> bool:
    with connect() as connection:
        return valid_key(connection, "acme", key_digest(text))


def test_the_demo_seed_is_idempotent_and_private(
    transactional_db: None, tmp_path: Path, settings: object, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.RELAYER_VAR = tmp_path  # type: ignore[attr-defined]
    sync_roles()
    call_command("relayer_seed_demo", "--dry-run", "--json")
    assert set(json.loads(capsys.readouterr().out)["would_make"]) == {
        "account",
        "api_key",
        "admin_user",
        "admin_password",
    }
    assert not (tmp_path / "demo.json").exists()
    assert not models.ApiKey.objects.exists()
    call_command("relayer_seed_demo", "--json")
    first = json.loads(capsys.readouterr().out)
    path = tmp_path / "demo.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    call_command("relayer_seed_demo", "--json")
    assert json.loads(capsys.readouterr().out) == first
    assert models.ApiKey.objects.count() == 1
    user = User.objects.get(username=first["admin_user"])
    assert user.check_password(first["admin_password"])
    assert user.is_staff
    assert not user.is_superuser
    path.write_text("not json")
    call_command("relayer_seed_demo", "--json")
    third = json.loads(capsys.readouterr().out)
    assert third["api_key"] != first["api_key"]
    assert models.ApiKey.objects.filter(revoked_at=None).count() == 1
    close_old_connections()


def test_roles_are_what_the_table_says_and_stay_so(db: None) -> None:
    sync_roles()
    viewer, operator, approver = (Group.objects.get(name=name) for name in ("viewer", "operator", "approver"))
    names = {
        group.name: set(group.permissions.values_list("codename", flat=True)) for group in (viewer, operator, approver)
    }
    assert all(codename.startswith("view_") for codename in names["viewer"])
    assert "view_reviewcase" in names["viewer"]
    assert "view_user" not in names["viewer"]
    for role, granted in GRANTS.items():
        assert {codename for codename in names[role] if not codename.startswith("view_")} == granted
    operator.permissions.add(*approver.permissions.all())
    sync_roles()
    assert "approve_review" not in set(operator.permissions.values_list("codename", flat=True))


def test_the_page_of_a_client_says_whether_its_keys_change_settings(db: None, admin_client: Client) -> None:
    for operator, said in ((True, "yes"), (False, "no")):
        account = models.Account.objects.create(name=f"client-{said}", operator=operator)
        page = admin_client.get(reverse("admin:requests_app_account_change", args=(account.pk,)))
        facts = dict(page.context["sections"][0].rows)
        assert facts["Its keys change runtime settings"] == said
