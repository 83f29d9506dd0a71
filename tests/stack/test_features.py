"""Runtime settings, v2 signatures, spare shares, extraData versions and worker metrics, on the running stack."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.stack.harness import ROOT, Stack
from tests.waiting import wait_until
from workers.devnet.traffic import Submission, Traffic

pytestmark = pytest.mark.stack
SHARES, SECONDS = "user_decrypt_additional_shares", "user_decrypt_additional_shares_timeout_secs"


def setting(stack: Stack, *arguments: str) -> None:
    """`manage.py relayer_setting set` against the stack, as an operator types it."""
    command = [sys.executable, str(ROOT / "manage.py"), "relayer_setting", "set", *arguments, "--reason", "test"]
    environment = {
        key: value for key, value in os.environ.items() if key not in ("DJANGO_SETTINGS_MODULE", "RELAYER_ROLE")
    }
    subprocess.run(
        command, env={**environment, "RELAYER_VAR": str(stack.var)}, cwd=ROOT, check=True, capture_output=True
    )


@pytest.fixture
def waits_for_shares(stack: Stack) -> Iterator[list[tuple[Submission, str]]]:
    """Four shares beyond the threshold of 9: all that the 13 nodes give. What the test puts into the list shows when that is over."""
    setting(stack, SECONDS, "60")
    setting(stack, SHARES, "4")
    jobs: list[tuple[Submission, str]] = []
    yield jobs
    setting(stack, SHARES, "default")
    setting(stack, SECONDS, "default")

    def forgotten() -> bool:  # by every web process
        return all(len(result(stack, *job)["result"]["result"]) == 9 for job in jobs for _ in range(10))

    wait_until(forgotten, 60, "nine shares again")


def posted(stack: Stack, submission: Submission, body: dict[str, Any] | None = None) -> str:
    answer = stack.api.post(submission.path, body or submission.body)
    assert answer.status == 202, answer
    return str(answer.body["result"]["jobId"])


def result(stack: Stack, submission: Submission, job: str, timeout: float = 120) -> dict[str, Any]:
    """The body of the final answer."""

    def final() -> Any:
        answer = stack.api.get(f"{submission.path}/{job}")
        return None if answer.status == 202 else answer

    answer = wait_until(final, timeout)
    return {"http": answer.status, **answer.body}


@pytest.mark.parametrize("form", ["user_decrypt", "delegated"])
def test_a_poisoned_copy_does_not_block_the_honest_request(stack: Stack, traffic: Traffic, form: Any) -> None:
    (honest,) = traffic.build([form])
    bad = posted(stack, honest, {**honest.body, "signature": "11" * 65})
    good = posted(stack, honest)
    assert bad != good
    denied = result(stack, honest, bad)
    assert (denied["http"], denied["error"]["label"]) == (400, "validation_failed")
    assert len(result(stack, honest, good)["result"]["result"]) == 9


def test_spare_shares_arrive_and_contexts_have_thresholds(
    stack: Stack, traffic: Traffic, waits_for_shares: list[tuple[Submission, str]]
) -> None:
    context, epoch = (bytes([tag]) + (1).to_bytes(31, "big") for tag in (7, 8))
    versions = ["0x00", "0x01" + context.hex(), "0x02" + context.hex() + epoch.hex()]
    made = [traffic.build(["user_decrypt"], extra_data=version)[0] for version in versions]
    # The web processes know the new settings within 5 s; on-chain answers take longer than that only by accident.
    jobs = [(one, posted(stack, one)) for one in made]
    waits_for_shares.extend(jobs)

    def served() -> bool:
        counts = [len(result(stack, one, job)["result"]["result"]) for one, job in jobs]
        return counts == [13, 13, 13]

    wait_until(served, 120)
    extras = {share["extraData"] for one, job in jobs for share in result(stack, one, job)["result"]["result"]}
    assert extras == set(versions)
    with stack.database() as conn:
        thresholds = conn.execute(
            "SELECT resolved_threshold FROM user_decrypt_req WHERE ext_job_id = ANY(%s::uuid[])",
            ([job for _, job in jobs],),
        ).fetchall()
    assert thresholds == [(9,)] * 3


def test_a_scrape_shows_what_the_workers_did(stack: Stack, traffic: Traffic) -> None:
    (one,) = traffic.build(["public_decrypt"])
    result(stack, one, posted(stack, one))
    parts = urlsplit(stack.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    for status in ("queued", "processing", "tx_in_flight", "receipt_received"):
        pattern = rf'relayer_request_status_duration_seconds_count{{previous_status="{status}",req_type="public_decrypt"}} ([0-9.]+)'
        found = re.search(pattern, text)
        assert found is not None, status
        assert float(found[1]) >= 1
    assert 'relayer_db_query_duration_seconds_count{table="public_decrypt_req"}' in text
    assert "relayer_request_cache_total" in text
