"""Figures of ended requests: each row counted once, in every grain, and drawn."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.test import Client

from requests_app import models
from requests_app.admin import charts
from requests_app.errors import StaleEpoch
from requests_app.states import Kind, Status
from requests_app.store import figures, leases
from requests_app.store.session import web_connection
from requests_app.store.signing import Fence
from tests.desk.scene import Scene

pytestmark = pytest.mark.django_db


def ended(ago: timedelta, took: float, status: Status = Status.COMPLETED, times: int = 1) -> None:
    """Rows that ended a while ago after `took` seconds."""
    at = datetime.now(UTC) - ago
    models.PublicDecryptRequest.objects.bulk_create(
        models.PublicDecryptRequest(
            ext_job_id=uuid.uuid4(),
            int_job_id=uuid.uuid4().bytes * 2,
            status=status.value,
            fail_label="not_allowed_on_host_acl" if status is Status.FAILURE else None,
            created_at=at - timedelta(seconds=took),
            updated_at=at,
            state_entered_at=at,
            completed_at=at,
        )
        for _ in range(times)
    )


def count(limit: int = 1000) -> int:
    return figures.count_ended(web_connection(), Kind.PUBLIC_DECRYPT, 15.0, limit)


def test_a_row_is_counted_once_in_each_grain_that_still_shows_it() -> None:
    ended(timedelta(minutes=5), 1.0)
    ended(timedelta(hours=20), 2.0, Status.FAILURE)
    ended(timedelta(days=30), 4.0)
    ended(timedelta(seconds=2), 8.0)  # may have neighbours whose transactions are still open
    assert [count(), count()] == [3, 0]
    assert {(row.status, row.rows) for row in figures.ended_ever(web_connection())} == {
        ("completed", 2),
        ("failure", 1),
    }
    found = {
        grain: sum(row.n for row in figures.ended_since(web_connection(), grain, 10**10)) for grain in figures.GRAINS
    }
    assert found == {figures.EVER: 3, figures.MINUTE: 1, figures.QUARTER: 2, figures.TWO_HOURS: 2}


def test_small_batches_reach_the_same_sum_even_when_rows_end_at_one_moment() -> None:
    ended(timedelta(minutes=8), 1.0, times=5)
    ended(timedelta(minutes=7), 1.0)
    assert [count(2), count(2), count(2)] == [5, 1, 0]


def test_a_rolled_back_count_is_counted_again() -> None:
    ended(timedelta(minutes=5), 1.0)
    conn = web_connection()
    with conn.transaction(force_rollback=True):
        assert count() == 1
    assert count() == 1


def test_nothing_is_counted_under_a_lease_that_is_somebody_elses() -> None:
    ended(timedelta(minutes=5), 1.0)
    conn, resource = web_connection(), "singleton:figures"
    leases.open_lease(conn, resource)
    leases.claim_lease(conn, resource, "a", 0, 10, gone=False, how="free")
    for stale in (Fence(resource, "a", 2), Fence(resource, "b", 1)):
        with pytest.raises(StaleEpoch):
            figures.count_ended(conn, Kind.PUBLIC_DECRYPT, 15.0, 1000, stale)
    assert figures.count_ended(conn, Kind.PUBLIC_DECRYPT, 15.0, 1000, Fence(resource, "a", 1)) == 1


def test_percentiles_are_within_an_eighth() -> None:
    ended(timedelta(minutes=5), 1.0, times=90)
    ended(timedelta(minutes=5), 60.0, times=10)
    count()
    span = charts.SPANS["1h"]
    rows = figures.ended_since(web_connection(), span.grain, span.seconds)
    buckets: dict[int, int] = {}
    for row in rows:
        buckets[row.bucket] = buckets.get(row.bucket, 0) + row.n
    assert charts.percentile(buckets, 0.5) == pytest.approx(1.0, rel=0.13)
    assert charts.percentile(buckets, 0.95) == pytest.approx(60.0, rel=0.13)
    assert charts.percentile({}, 0.5) is None


def test_old_steps_leave_and_the_sum_stays() -> None:
    ended(timedelta(minutes=5), 1.0)
    count()
    models.FinishedFigure.objects.exclude(grain=0).update(at=datetime.now(UTC) - timedelta(days=60))
    assert figures.forget_steps(web_connection()) == 3
    assert [row.rows for row in figures.ended_ever(web_connection())] == [1]


@pytest.mark.parametrize("span", sorted(charts.SPANS))
def test_the_first_page_draws_each_span_and_says_it_in_words(span: str, as_role: Callable[[str], Client]) -> None:
    Scene().build(each=1)
    ended(timedelta(minutes=5), 3.0)
    ended(timedelta(minutes=4), 3.0, Status.FAILURE)
    count()
    charts.forget()
    page = as_role("viewer").get(f"/admin/?span={span}").content.decode()
    assert f"?span={span}" in page
    assert 'aria-current="true"' in page
    assert "<polyline" in page
    assert "answered a minute" in page
    assert "not_allowed_on_host_acl" in page
    assert ' style="' not in page[page.index('id="relayer-overview"') : page.index("rl-foot")]


def test_the_duty_counts_under_its_lease_only(conn: psycopg.Connection) -> None:
    from types import SimpleNamespace
    from typing import Any, cast

    from requests_app.errors import StaleEpoch
    from workers.duties import figures as duty

    models.ExecLease.objects.create(
        resource="singleton:figures", instance="a", epoch=3, lease_until=datetime.now(UTC) + timedelta(hours=1)
    )
    ended(timedelta(minutes=5), 1.0)
    context = cast("Any", SimpleNamespace(conn=conn))
    with pytest.raises(StaleEpoch):
        duty.run(context, cast("Any", SimpleNamespace(resource="singleton:figures", instance="a", epoch=2)))
    assert not models.FinishedFigure.objects.exists()
    duty.run(context, cast("Any", SimpleNamespace(resource="singleton:figures", instance="a", epoch=3)))
    assert models.FinishedFigure.objects.filter(grain=0).count() == 1
