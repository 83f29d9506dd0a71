"""Metrics of fhevm_http 15.5 and fhevm_internals 9.1 that count what happens, and their sum over the processes of a machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import REGISTRY
from pytest_django import Settings

from relayer_site.metrics import MachineCollector
from requests_app import metrics
from requests_app.api import signatures
from requests_app.states import Actor, Kind, Status, Verb
from requests_app.store.session import fetch_one
from requests_app.transitions.generic import Change, apply
from tests.api import bodies
from tests.api.conftest import Api
from tests.core.rows import insert_request

WRITER = """
from prometheus_client import Counter
Counter("relayer_test_total", "a test", ("who",)).labels("all").inc({count})
"""


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_every_statement_is_timed_and_failures_are_counted(conn: psycopg.Connection[Any]) -> None:
    timed, failed = (
        sample("relayer_db_query_duration_seconds_count", table="requests"),
        sample("relayer_db_errors_total", table="requests"),
    )
    fetch_one(conn, "requests", "published_key")
    with pytest.raises(psycopg.Error), conn.transaction():
        fetch_one(conn, "requests", "lock_request", {"id": 1}, table="nothing_like_it")
    assert sample("relayer_db_query_duration_seconds_count", table="requests") == timed + 1
    assert sample("relayer_db_errors_total", table="nothing_like_it") == 1
    assert sample("relayer_db_errors_total", table="requests") == failed


def test_timing_a_statement_is_cheap() -> None:
    """Ten microseconds of 500 that a statement takes; measured as the best of many, so that a busy machine does not matter."""
    import timeit

    def once() -> None:
        with metrics.timed_query("requests"):
            pass

    assert min(timeit.repeat(once, number=200, repeat=30)) / 200 < 25e-6


def test_a_post_counts_its_estimate_and_whether_its_content_was_known(api: Api) -> None:
    name, estimate = "relayer_request_cache_total", "relayer_retry_after_raw_eta_seconds"
    before = [sample(name, req_type="public_decrypt", result=result) for result in ("miss", "hit")]
    count, total = (sample(f"{estimate}_{part}", req_type="public_decrypt") for part in ("count", "sum"))
    for _ in range(3):
        assert api.post("/v2/public-decrypt", bodies.public_decrypt()).status_code == 202
    assert [sample(name, req_type="public_decrypt", result=result) for result in ("miss", "hit")] == [
        before[0] + 1,
        before[1] + 2,
    ]
    assert sample(f"{estimate}_count", req_type="public_decrypt") == count + 3
    # 6.25 s when nothing waits; the two repetitions find one request waiting for its check: 10.25 s.
    assert sample(f"{estimate}_sum", req_type="public_decrypt") == pytest.approx(total + 6.25 + 2 * 10.25)


def test_the_signature_precheck_counts_its_outcomes(
    api: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "relayer_user_decrypt_signature_precheck_total"
    before = {outcome: sample(name, outcome=outcome) for outcome in ("rejected", "host_call_failed", "too_many")}
    mixed = bodies.unified()
    mixed["attestedPayload"]["handles"].append(
        {**mixed["attestedPayload"]["handles"][0], "ctHandle": bodies.H1[:46] + "0000000000002329" + "0400"}
    )
    assert api.post("/v3/user-decrypt", mixed).status_code == 400
    settings.SIGNATURE_VERIFIER = "tests.features.test_metrics.Unreachable"
    assert api.post("/v3/user-decrypt", bodies.unified()).status_code == 500
    monkeypatch.setattr(signatures, "_PLACES", BoundedSemaphore(1))
    assert signatures._PLACES.acquire(blocking=False)
    assert api.post("/v3/user-decrypt", bodies.unified()).status_code == 429
    assert sample(name, outcome="too_many") == before["too_many"] + 1
    assert sample(name, outcome="rejected") == before["rejected"] + 1
    assert sample(name, outcome="host_call_failed") == before["host_call_failed"] + 1


class Unreachable:
    """A verifier whose host chain does not answer."""

    def is_valid(self, *arguments: Any) -> bool:
        from requests_app.errors import WalletCheckFailed

        raise WalletCheckFailed("down")


def test_time_spent_in_a_state_is_noted_when_it_is_left(conn: psycopg.Connection[Any]) -> None:
    labels = {"req_type": "input_proof", "previous_status": "processing"}
    before = sample("relayer_request_status_duration_seconds_sum", **labels)
    row = insert_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    conn.execute(
        "UPDATE input_proof_req SET state_entered_at = clock_timestamp() - interval '40 seconds' WHERE id = %s", (row,)
    )
    assert apply(conn, Verb.ABANDON, Kind.INPUT_PROOF, [Change(row)], Actor.SWEEP)
    assert 40 <= sample("relayer_request_status_duration_seconds_sum", **labels) - before < 60


def test_a_scrape_adds_up_the_programs_of_the_machine(tmp_path: Path, settings: Settings) -> None:
    settings.RELAYER_VAR = tmp_path
    for program, count in (("web", 1), ("settle", 2), ("listener", 4)):
        folder = tmp_path / "metrics" / program
        folder.mkdir(parents=True)
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
        subprocess.run([sys.executable, "-c", WRITER.format(count=count)], env=environment, check=True)
    registry = CollectorRegistry()
    registry.register(MachineCollector(tmp_path / "metrics" / "web"))
    assert 'relayer_test_total{who="all"} 7.0' in generate_latest(registry).decode()
    settings.RELAYER_VAR = tmp_path / "elsewhere"
    alone = CollectorRegistry()
    alone.register(MachineCollector(tmp_path / "metrics" / "web"))
    assert 'relayer_test_total{who="all"} 1.0' in generate_latest(alone).decode()
