"""The web role's pool: an outage of the database must not take every thread of the server, nor one request more than it must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connections

from relayer_site.pooled.base import DatabaseWrapper

ROOT = Path(__file__).resolve().parent.parent.parent
_PRINT = (
    "import json; from django.conf import settings; print(json.dumps(settings.DATABASES['default']['OPTIONS']['pool']))"
)


@pytest.mark.parametrize(("threads", "size"), [(32, 20), (64, 20), (8, 20), (1, 1)])
def test_threads_that_wait_for_the_pool_leave_some_for_liveness(threads: int, size: int) -> None:
    """All of them used to wait 5 s each while the database was away, and an orchestrator would have killed the process."""
    environment = {
        **os.environ,
        "RELAYER_ROLE": "web",
        "DJANGO_SETTINGS_MODULE": "relayer_site.settings",
        "WEB_THREADS": str(threads),
        "WEB_POOL_SIZE": str(size),
    }
    answer = subprocess.run(
        [sys.executable, "-c", _PRINT], env=environment, cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    pool = json.loads(answer.stdout)
    assert pool["max_size"] == size
    assert pool["min_size"] + pool["max_waiting"] >= threads, "a burst on a pool that has rested: everybody may wait"
    assert pool["max_waiting"] < threads or threads == 1


def test_a_check_out_costs_no_statement_and_gives_no_dead_connection(transactional_db: None) -> None:
    """A server that was restarted leaves a pool of closed connections; none of them reaches a request."""
    web = DatabaseWrapper(
        {
            **connections["default"].settings_dict,
            "CONN_MAX_AGE": 0,
            "OPTIONS": {"pool": {"min_size": 2, "max_size": 2}},
        },
        alias="pooled",
    )
    try:
        seen = []
        for _ in range(6):
            with web.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid(), current_setting('application_name')")
                seen.append(cursor.fetchone()[0])
            web.close()
        assert len(set(seen)) <= 2, "connections are kept"
        with connections["default"].cursor() as other:
            other.execute("SELECT query FROM pg_stat_activity WHERE pid = ANY(%s)", [seen])
            assert all("pg_backend_pid" in text for (text,) in other.fetchall()), "the last thing they were asked"
            other.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s) pid", [list(set(seen))])
        for _ in range(4):
            with web.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                assert cursor.fetchone()[0] not in seen
            web.close()
    finally:
        web.close_pool()
