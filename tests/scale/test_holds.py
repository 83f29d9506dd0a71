"""Holds on review cases leave: a row for each case that anybody ever took would be one more table that only grows."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User

from requests_app import assignments
from workers.duties import retention

pytestmark = pytest.mark.django_db(transaction=True)


class Running:
    """A shift that does not end; all that retention asks of its context."""

    def stopping(self) -> bool:
        return False


def holds(conn: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in conn.execute("SELECT resource FROM exec_lease ORDER BY resource")]


def hold(conn: psycopg.Connection[Any], resource: str, ended_hours_ago: float) -> None:
    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until)"
        " VALUES (%s, 'desk:ann', 3, clock_timestamp() - make_interval(secs => %s))",
        (resource, ended_hours_ago * 3600),
    )


def test_holds_that_ended_a_day_ago_leave_and_nothing_else(conn: psycopg.Connection[Any], settings: Any) -> None:
    settings.RETENTION_ENABLED = False
    for resource, hours in (
        ("review:1", 25),
        ("review:2", 23),
        ("review:3", -1),
        ("signer:1:0x00", 1000),
        ("singleton:commands", 1000),
        ("reviewers", 1000),
    ):
        hold(conn, resource, hours)
    assert retention.run(Running(), None) == 1  # type: ignore[arg-type]
    assert holds(conn) == ["review:2", "review:3", "reviewers", "signer:1:0x00", "singleton:commands"]


def test_more_holds_than_a_batch_leave_in_one_run(
    conn: psycopg.Connection[Any], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RETENTION_ENABLED = False
    monkeypatch.setattr(retention, "BATCH", 2)
    for case in range(5):
        hold(conn, f"review:{case}", 25)
    assert retention.run(Running(), None) == 5  # type: ignore[arg-type]
    assert holds(conn) == []


def test_a_case_is_taken_as_ever_after_its_hold_has_left_and_the_old_page_holds_nothing(
    conn: psycopg.Connection[Any], settings: Any
) -> None:
    settings.RETENTION_ENABLED = False
    ann, bob = User.objects.create_user("ann"), User.objects.create_user("bob")
    first = assignments.assign(conn, 7, ann.pk)
    assert first is not None
    conn.execute("UPDATE exec_lease SET lease_until = clock_timestamp() - interval '25 hours'")
    retention.run(Running(), None)  # type: ignore[arg-type]
    assert holds(conn) == []
    assert not assignments.renew(conn, 7, ann.pk, first.epoch)
    second = assignments.assign(conn, 7, bob.pk)
    assert second is not None
    assert second.reviewer == "bob"
    assert not assignments.renew(conn, 7, ann.pk, first.epoch)
    assert assignments.renew(conn, 7, bob.pk, second.epoch)
