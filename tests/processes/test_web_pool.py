"""The web role's pool: an outage of the database must not take every thread of the server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert pool["max_waiting"] >= max(1, threads - size), "while the database answers, every thread may have its turn"
    assert pool["max_waiting"] < threads or threads == 1
