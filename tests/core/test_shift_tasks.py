"""The tasks of the shifts, beside the processes that take them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from workers.tasks import enqueue_shift

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_successor_is_enqueued_after_the_server_was_restarted_in_the_middle_of_a_shift(conn: Any) -> None:
    """Django's own connection does not mend itself: all slots waited for the safety net, up to a minute."""
    connection.ensure_connection()
    conn.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.connection.info.backend_pid,))
    enqueue_shift("settle", "settle-test", 0, after=1, wait=0.0)
    assert conn.execute("SELECT count(*) FROM django_q_ormq WHERE key = 'settle-test'").fetchone() == (1,)
