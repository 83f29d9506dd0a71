"""The web server's workers end with their parent, also one that is killed while they are still starting."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from requests_app.sockets import free_port
from tests.processes.children import wait_gone
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("after_seconds", [0.0, 0.1, 0.3, 0.6])
def test_no_worker_outlives_a_killed_parent(after_seconds: float) -> None:
    """A worker that was still importing when its parent died used to stay for ever, and to serve on the same port."""
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "relayer_site.web"],
        env={**os.environ, "RELAYER_ROLE": "web", "API_PORT": str(port)},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as parent:
        workers = wait_until(lambda: _workers(parent.pid), 60, "workers")
        killed_at = time.monotonic() + after_seconds
        wait_until(lambda: time.monotonic() >= killed_at, 60)
        parent.kill()
        parent.wait()
        wait_gone(workers, 60)


def _workers(pid: int) -> list[int]:
    children = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return children if len(children) >= 2 else []
