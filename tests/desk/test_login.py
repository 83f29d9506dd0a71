"""The desk's door: who fails too often is not looked at for a while, and nobody else is shut out."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from requests_app import desk_logins
from requests_app.models import DeskLoginCount

PASSWORD = "a right password"
HOME, ELSEWHERE = "203.0.113.7", "198.51.100.20"


@pytest.fixture(autouse=True)
def _bounds(settings: Any) -> None:
    settings.DESK_LOGIN_FAILURES = 3
    settings.DESK_LOGIN_FAILURES_PER_ADDRESS = 5
    settings.DESK_LOGIN_WINDOW_SECONDS = 600
    settings.TRUSTED_PROXIES = 0


@pytest.fixture
def ann(db: None) -> User:
    return User.objects.create_user("ann", password=PASSWORD, is_staff=True)


def enter(name: str, password: str, address: str = HOME, **headers: str) -> Any:
    return Client().post("/admin/login/", {"username": name, "password": password}, REMOTE_ADDR=address, **headers)


def let_pass(seconds: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE desk_login_count SET opened_at = opened_at - make_interval(secs => %s)", [seconds])


def test_after_so_many_failures_a_right_password_is_not_looked_at(ann: User) -> None:
    assert [enter("ann", "wrong").status_code for _ in range(3)] == [200] * 3
    refused = enter("ann", PASSWORD)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["Retry-After"]) <= 600
    page = refused.content.decode()
    assert "Too many logins have failed" in page
    assert 'id="login-form"' in page
    assert "sessionid" not in refused.cookies
    assert enter(" ANN", PASSWORD).status_code == 429
    let_pass(600)
    assert enter("ann", PASSWORD).status_code == 302


def test_nobody_is_shut_out_from_elsewhere_and_no_window_is_prolonged(ann: User) -> None:
    for _ in range(20):
        enter("ann", "wrong")
    assert enter("ann", PASSWORD, ELSEWHERE).status_code == 302
    assert enter("ann", PASSWORD).status_code == 429
    # Refused tries used up nothing of the address: somebody else there gets in.
    User.objects.create_user("bob", password=PASSWORD, is_staff=True)
    assert enter("bob", PASSWORD).status_code == 302
    let_pass(600)
    assert enter("ann", PASSWORD).status_code == 302


def test_who_gets_in_begins_anew(ann: User) -> None:
    for _ in range(3):
        assert [enter("ann", "wrong").status_code for _ in range(1)] == [200]
        assert enter("ann", PASSWORD).status_code == 302
    assert enter("ann", "wrong").status_code == 200
    assert enter("ann", PASSWORD).status_code == 302
    assert list(DeskLoginCount.objects.values_list("tries", flat=True)) == [4]  # the address's failures stand


def test_an_address_that_tries_many_names(ann: User) -> None:
    assert [enter(f"name {number}", "wrong").status_code for number in range(5)] == [200] * 5
    assert enter("ann", PASSWORD).status_code == 429
    before = DeskLoginCount.objects.count()
    assert enter("one more", "wrong").status_code == 429
    assert DeskLoginCount.objects.count() == before
    assert enter("ann", PASSWORD, ELSEWHERE).status_code == 302


def test_a_form_without_password_counts_for_nothing(ann: User) -> None:
    for _ in range(9):
        assert enter("ann", "").status_code == 200
    assert not DeskLoginCount.objects.exists()


def test_counts_that_are_over_leave(ann: User) -> None:
    enter("ann", "wrong", ELSEWHERE)
    let_pass(600)
    enter("ann", "wrong")
    assert DeskLoginCount.objects.count() == 2


def test_what_is_logged(ann: User, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "relayer.desk")
    enter("ann", "wrong")
    enter("my password instead", "ann")
    enter("ann", PASSWORD)
    assert [(line.outcome, line.person, line.address) for line in caplog.records if line.name == "relayer.desk"] == [  # type: ignore[attr-defined]
        ("failed", "ann", HOME),
        ("failed", "(unknown)", HOME),
        ("succeeded", "ann", HOME),
    ]
    assert "my password" not in caplog.text


def test_of_many_tries_at_once_no_more_get_through(conn: psycopg.Connection, settings: Any) -> None:
    from requests_app.store.session import connect

    def tries(_: int) -> list[int]:
        with connect("worker") as own:
            return [desk_logins.admit(own, HOME, "ann") for _ in range(5)]

    with ThreadPoolExecutor(4) as threads:
        waits = [wait for each in threads.map(tries, range(4)) for wait in each]
    assert waits.count(0) == settings.DESK_LOGIN_FAILURES


@pytest.mark.parametrize(
    ("proxies", "meta", "address"),
    [
        (0, {"REMOTE_ADDR": HOME, "HTTP_X_FORWARDED_FOR": "1.1.1.1"}, HOME),
        (1, {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": f"1.1.1.1, {HOME}"}, HOME),
        (2, {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": f"1.1.1.1, {HOME}, 10.0.0.2"}, HOME),
        (2, {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": HOME}, HOME),
        (1, {"REMOTE_ADDR": HOME}, HOME),
        (1, {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": f"{HOME}:4711"}, HOME),
        (1, {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "[2001:db8::5]:4711"}, "2001:db8::/64"),
        (0, {"REMOTE_ADDR": "2001:db8:0:0:1:2:3:4"}, "2001:db8::/64"),
        (0, {"REMOTE_ADDR": f"::ffff:{HOME}"}, HOME),
        (1, {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "not an address"}, "unknown"),
        (0, {}, "unknown"),
    ],
)
def test_whose_address_counts(settings: Any, proxies: int, meta: dict[str, str], address: str) -> None:
    settings.TRUSTED_PROXIES = proxies
    assert desk_logins.address_of(meta) == address
