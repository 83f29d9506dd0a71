"""Liveness, health, version, metrics: what monitors see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from django.http import HttpRequest
from django.test import Client, RequestFactory

from relayer_site import health, metrics, version
from relayer_site.health import Probe, listens
from relayer_site.metrics import endpoint_of, sdk_of
from relayer_site.metrics_sql import DatabaseCollector
from requests_app import models
from requests_app.config import Config
from requests_app.store.overview import Listener
from tests.chain.bodies import GATEWAY
from tests.chain.stub_node import json_reply, results, stub_node
from tests.desk.scene import Scene

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _fresh_health() -> None:
    health.current.clear()


def test_liveness_asks_nobody(client: Client) -> None:
    """Without the db fixture any statement would fail the test."""
    answer = client.get("/liveness")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


def test_version_names_the_commit(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELAYER_BUILD", raising=False)
    version.build.cache_clear()
    answer = client.get("/version").json()
    assert set(answer) == {"name", "version", "build"}
    assert re.fullmatch(r"([0-9a-f]{12}|no_git_hash)-(clean|dirty|no_git_dirty)", answer["build"])
    monkeypatch.setenv("RELAYER_BUILD", "v1.2.3-packaged")
    version.build.cache_clear()
    assert client.get("/version").json()["build"] == "v1.2.3-packaged"
    version.build.cache_clear()


def test_the_packaged_version_is_the_projects() -> None:
    assert f'version = "{version.VERSION}"' in (ROOT / "pyproject.toml").read_text()


def test_health_reports_each_dependency(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Probe("database", lambda: {"database": True, "gateway_listener_0": True})
    monkeypatch.setattr(health, "PROBES", (good, Probe("gateway_http", lambda: {"gateway_http": True})))
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "healthy",
        "dependencies": {"database": "ok", "gateway_listener_0": "ok", "gateway_http": "ok"},
    }
    health.current.clear()
    monkeypatch.setattr(health, "PROBES", (good, Probe("gateway_http", lambda: {"gateway_http": False})))
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "unhealthy"
    assert answer.json()["dependencies"]["gateway_http"] == "fail"


@pytest.mark.parametrize(
    ("depth", "said", "verdicts"),
    [
        (0, {"number": "0x60"}, {"gateway_http": True, "gateway_finality": True}),
        (0, None, {"gateway_http": True, "gateway_finality": False}),
        (0, {"error": {"code": -39001, "message": "finalized block not found"}}, {"gateway_http": True, "gateway_finality": False}),
        (12, None, {"gateway_http": True, "gateway_finality": True}),
    ],
)  # fmt: skip
def test_a_chain_that_marks_nothing_as_final_is_named(
    monkeypatch: pytest.MonkeyPatch, depth: int, said: Any, verdicts: dict[str, bool]
) -> None:
    """Without a mark and without a depth nothing would ever be final, and everything wait in silence."""

    def answer(method: str, params: Any) -> Any:
        if method == "eth_getBlockByNumber":
            return said if params[0] == "finalized" else {"number": params[0]}
        return {"eth_chainId": "0x9fbf1", "eth_blockNumber": "0x64"}[method]

    with stub_node(lambda document, count: json_reply(results(document, answer))) as node:
        gateway = replace(GATEWAY, rpc_urls=(node.url,), finality_depth=depth)
        monkeypatch.setattr(health, "config", lambda: Config(gateway, {}, 9))
        assert health.check_gateway() == verdicts


def test_a_failing_or_hanging_check_is_a_failed_dependency() -> None:
    """A hung check does not hang the answer, and a second one is not started while it hangs."""
    release, starts = Event(), []

    def hang() -> dict[str, bool]:
        starts.append(1)
        release.wait(120)
        return {"slow": True}

    def explode() -> dict[str, bool]:
        raise psycopg.OperationalError("connection refused: postgres://user:secret@host/db")

    broken = Probe("broken", explode)
    assert broken.finish(broken.start(), time.monotonic() + 5) == {"broken": False}
    slow = Probe("slow", hang)
    before = time.monotonic()
    assert slow.finish(slow.start(), before + 0.05) == {"slow": False}
    assert slow.finish(slow.start(), time.monotonic() + 60) == {"slow": False}
    assert time.monotonic() - before < 30
    assert starts == [1]
    release.set()


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, True),
        ({"halted": "conflict"}, False),
        ({"lease_seconds_left": -0.5}, False),
        ({"lease_seconds_left": None}, False),
        ({"turn_age_seconds": 60.0, "cursor_age_seconds": 60.0}, False),
        ({"turn_age_seconds": None, "cursor_age_seconds": None}, False),
        ({"turn_age_seconds": 60.0, "cursor_age_seconds": 1.0}, True),
        ({"turn_age_seconds": 1.0, "cursor_age_seconds": 600.0}, True),
    ],
)
def test_when_a_listener_counts_as_alive(changes: dict[str, object], verdict: bool) -> None:
    row = Listener(1, "gateway", 654321, 0, 10, 1.0, 0.2, 8.0, "host:1", None)
    assert listens(row._replace(**changes)) is verdict  # type: ignore[arg-type]


@pytest.mark.django_db(transaction=True)
def test_the_database_check_reads_the_listeners() -> None:
    assert health.check_database() == {"database": True, "gateway_listener_0": False}
    for number in (1, 2):
        models.EnvelopeSource.objects.create(
            source_id=number, name=f"chain-{number}", chain_id=number, start_block=0, retain=timedelta(days=1)
        )
        models.ChainCursor.objects.create(source_id=number, block=0)
    models.ExecLease.objects.create(
        resource="listener:2", instance="x", lease_until=datetime.now(UTC) + timedelta(seconds=60)
    )
    models.WorkerBeat.objects.create(resource="listener:2", instance="x", pid=1, host="h")
    assert health.check_database() == {"database": True, "gateway_listener_0": False, "gateway_listener_1": True}


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("/v2/input-proof", "POST", ("/input-proof", "v2")),
        ("/v2/user-decrypt/0d5f9ee4-67d1-4d29-a2e0-55ad07ed5a5f", "GET", ("/user-decrypt", "v2")),
        ("/v3/user-decrypt", "POST", ("/user-decrypt", "v3")),
        ("/v2/delegated-user-decrypt", "POST", ("/delegated-user-decrypt", "v2")),
        ("/v2/delegated-user-decrypt/x", "GET", ("/user-decrypt", "v2")),
        ("/v2/keyurl", "GET", ("/keyurl", "v2")),
        ("/v1/0xdeadbeef/../../etc", "GET", ("other", "v1")),
        ("/admin/requests_app/signer/7/change/", "GET", ("/admin", "none")),
        ("/healthz", "GET", ("/healthz", "none")),
        ("/" + "a" * 500, "GET", ("other", "none")),
        ("", "GET", ("other", "none")),
        ("//", "GET", ("other", "none")),
    ],
)
def test_endpoint_labels_come_from_a_list(path: str, method: str, expected: tuple[str, str]) -> None:
    assert endpoint_of(path, method) == expected


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("@zama-fhe/relayer-sdk", "0.4.3", ("@zama-fhe/relayer-sdk", "0.4")),
        ("@zama-fhe/relayer-sdk", "0.5.0-alpha.5", ("@zama-fhe/relayer-sdk", "0.5")),
        ("@zama-fhe/relayer-sdk", "0.4", ("@zama-fhe/relayer-sdk", "0.4")),
        ("@zama-fhe/relayer-sdk", "9.9.9", ("@zama-fhe/relayer-sdk", "unknown")),
        ("@zama-fhe/relayer-sdk", "0.4x", ("@zama-fhe/relayer-sdk", "unknown")),
        ("@fhevm/sdk", "0.4.3", ("unknown", "unknown")),
        ("", "", ("unknown", "unknown")),
    ],
)
def test_sdk_labels_come_from_a_list(name: str, number: str, expected: tuple[str, str]) -> None:
    assert sdk_of(name, number) == expected


def scraped(text: str) -> dict[str, float]:
    """Samples by their full text."""
    return {m[1]: float(m[2]) for m in re.finditer(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}


@pytest.mark.django_db
def test_a_scrape_shows_exchanges_and_the_database(client: Client) -> None:
    Scene().build(each=1)
    series = (
        'relayer_http_requests_total{endpoint="/keyurl",method="GET",'
        'relayer_sdk_name="@zama-fhe/relayer-sdk",relayer_sdk_version="0.4",version="v2"}'
    )
    before = scraped(client.get("/metrics").content.decode()).get(series, 0)
    client.get("/v2/keyurl", headers={"zama-sdk-name": "@zama-fhe/relayer-sdk", "zama-sdk-version": "0.4.3"})
    text = client.get("/metrics").content.decode()
    samples = scraped(text)
    assert samples[series] == before + 1
    assert samples["relayer_database_up"] == 1
    assert samples['relayer_request_count{req_type="input_proof",status="queued"}'] == 0
    assert samples['relayer_request_count{req_type="user_decrypt",status="completed"}'] == 1
    assert samples['relayer_queue_size_count{queue_type="user_decrypt_readiness_throttler"}'] == 1
    assert {v for key, v in samples.items() if key.startswith("relayer_signer_nonce_distance")} == {3.0}
    assert samples['relayer_listener_block{source="gateway"}'] == 81_300
    assert sum(value for key, value in samples.items() if key.startswith("relayer_reviews_open")) == 4
    assert "0x" not in text, "no address, hash or id may become a label"


def test_without_database_a_scrape_still_answers() -> None:
    def away() -> None:
        raise psycopg.OperationalError("gone")

    families = list(DatabaseCollector(away).collect())  # type: ignore[arg-type]
    assert [(family.name, family.samples[0].value) for family in families] == [("relayer_database_up", 0)]


def test_every_web_worker_counts_into_one_sum(tmp_path: Path) -> None:
    """Two processes that share a directory; each scrape shows both (with plain counters it would show one's)."""
    program = (
        "import sys; from prometheus_client import generate_latest; from relayer_site import metrics\n"
        "from django.test import RequestFactory\n"
        "import django; django.setup()\n"
        "[metrics.observe_exchange(RequestFactory().get('/v2/keyurl'), 200, 0.003) for _ in range(int(sys.argv[1]))]\n"
        "from prometheus_client.registry import Collector\n"
        "class Nothing(Collector):\n"
        "    def collect(self): return []\n"
        "print(generate_latest(metrics.scrape_registry(Nothing())).decode())\n"
    )
    environment = {
        **os.environ,
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "relayer_site.settings",
    }
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program, count],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for count in ("3", "4")
    ]
    total = sum(value for key, value in scraped(outputs[1]).items() if key.startswith("relayer_http_requests_total"))
    assert total == 7


def test_metric_names_follow_the_rule(db: None) -> None:
    registry = metrics.scrape_registry(DatabaseCollector())
    ours = [family for family in registry.collect() if not family.name.startswith(("python_", "process_", "django_"))]
    assert len(ours) > 20
    for family in ours:
        assert re.fullmatch(r"relayer_[a-z_]+", family.name), family.name
        assert family.documentation


def test_unknown_methods_do_not_become_labels() -> None:
    request: HttpRequest = RequestFactory().generic("BREW", "/v2/keyurl")
    metrics.observe_exchange(request, 405, 0.001)
    assert metrics.responses_total.labels("/keyurl", "other", "v2", "405")._value.get() >= 1
