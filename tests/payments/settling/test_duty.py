"""The safety net: no payment waits without a job, and none waits for a window that is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from requests_app.errors import StaleEpoch
from tests.payments.settling.conftest import Shop
from tests.send.scenes import hold
from workers.duties import payment_jobs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def duty(shop: Shop) -> Any:
    """The duty under its lease."""
    fence = hold(shop.conn, "singleton:payment_jobs")

    def run(instance: str = fence.instance) -> int:
        lease = SimpleNamespace(resource=fence.resource, instance=instance, epoch=fence.epoch)
        return payment_jobs.run(SimpleNamespace(conn=shop.conn), lease)  # type: ignore[arg-type]

    return run


def test_a_lost_job_is_made_again_when_the_payment_was_idle_for_a_minute(shop: Shop, duty: Any) -> None:
    (payment,) = shop.pay()
    shop.conn.execute("DELETE FROM queue_job")
    assert duty() == 0
    shop.age(payment, 61)
    assert duty() == 1
    assert shop.jobs() == 1
    assert shop.conn.execute("SELECT priority FROM queue_job").fetchone() == (0,)
    assert duty() == 0


def test_a_payment_whose_job_was_given_up_waits_for_a_person(shop: Shop, duty: Any) -> None:
    from requests_app.store import letters
    from requests_app.store.letters import GivenUp
    from requests_app.store.queue import lease_jobs

    (payment,) = shop.pay()
    (leased,) = lease_jobs(shop.conn, "settle", 1, "x", 30)
    letters.park_jobs(shop.conn, [GivenUp(leased.receipt, "enough", "authorized")])
    shop.age(payment, 61)
    assert duty() == 0
    assert shop.jobs() == 0


def test_what_is_over_before_anything_was_signed_is_canceled(shop: Shop, duty: Any) -> None:
    (late,) = shop.pay(valid_before="1000")
    (good,) = shop.pay()
    assert duty() == 1
    assert shop.states(late, good) == ["canceled", "authorized"]
    assert shop.jobs() == 1


def test_without_the_lease_nothing_is_canceled(shop: Shop, duty: Any) -> None:
    (late,) = shop.pay(valid_before="1000")
    with pytest.raises(StaleEpoch):
        duty("somebody else")
    assert shop.states(late) == ["authorized"]
