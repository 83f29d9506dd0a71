"""Crash matrix: a process dies at every point of a request's life, the next one makes it good (queue_settle 4.4).

A process posts one request of each kind and works; it ends at its point. The next one finds what is left, and posts and dies
at the next point in its turn. After every few deaths one lives on, and everything is compared: each row completed, exactly one
request event a row on chain, nonces dense, nothing without an owner. Under `make test-full`: as many points as CRASH_SECONDS allow with kinds by CRASH_SEED, then all.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest
from django.test import Client

from requests_app.api.auth import forget_keys
from requests_app.config import config
from requests_app.runtime import forget as forget_settings
from requests_app.states import Kind
from tests.api.conftest import issue_key
from tests.core.rows import insert_account
from tests.crash.elsewhere import ELSEWHERE
from tests.crash.process import KINDS, Death, Scene, fork, live
from tests.crash.sites import crash_point_names
from tests.devnet.conftest import Devnet
from tests.waiting import wait_until
from workers.devnet.traffic import Form, Submission, Traffic
from workers.devnet.verify import REQUEST_EVENTS

KEY = "crash-key"
FORMS: list[Form] = ["user_decrypt", "public_decrypt", "input_proof"]
CI_KINDS = ("exit", "exit", "cut", "exit", "pause")
CI_SECONDS = float(
    os.environ.get("CRASH_SECONDS", "110")
)  # enough for every point on a machine that has nothing else to do; the start moves on with the seed
LEAST = 8
COMPARE_EVERY = 30
SEED = int(os.environ.get("CRASH_SEED", "0")) or int(time.time() // 86400)


@dataclass
class Field:
    """The place where they die."""

    home: Path
    devnet: Any
    conn: psycopg.Connection[Any]
    traffic: Traffic
    start: int
    children: list[int] = field(default_factory=list)
    stock: list[Submission] = field(default_factory=list)
    unposted: list[Submission] = field(default_factory=list)
    rival: int | None = None
    rows: int = 0
    deaths: Counter[str] = field(default_factory=Counter)

    def submissions(self, count: int) -> list[Submission]:
        """Requests that were never posted, made many at a time."""
        if len(self.stock) < count:
            self.stock += self.traffic.build(FORMS * 40)
        taken, self.stock = self.stock[:count], self.stock[count:]
        return taken

    def spawn(self, death: Death, *, posts: int = 1, seconds: float = 30.0, scenes: Sequence[Scene] = ()) -> int:
        """One more process; its id. What an earlier one could not post is posted again, as its client would do."""
        if posts:
            self.unposted += self.submissions(len(FORMS))
        submissions = list(self.unposted)
        pid = fork(lambda: live(self.home, death, submissions, KEY, seconds=seconds, scenes=scenes))
        self.children.append(pid)
        return pid

    def record(self) -> None:
        """A life without an appointment, with everything that comes seldom: the points that it passes."""
        pid = self.spawn(Death(), seconds=6.0)
        assert os.waitpid(pid, 0)[1] == 0
        self.finish()
        self.compare()

    def die(self, death: Death) -> bool:
        """One process that meets its end; whether it came to its point. One that lives on works beside the next for a while."""
        self._prepare(death.point)
        (self.home / "died").unlink(missing_ok=True)
        pid = self.spawn(death, seconds=12.0)
        rival, self.rival = self.rival, None
        deadline = monotonic() + 12.0
        while monotonic() < deadline and not (self.home / "died").exists() and os.waitpid(pid, os.WNOHANG) == (0, 0):
            time.sleep(0.01)
        self.deaths[death.kind] += 1
        if rival is not None:
            _wake(rival)  # a paused one wakes up; another has taken its leases and done its work
            time.sleep(0.2)
            _end(rival)
        if death.kind != "exit":
            self.rival = pid
        return (self.home / "died").exists()

    def _prepare(self, point: str) -> None:
        if point.endswith("lease_open_commit"):
            self.conn.execute("DELETE FROM exec_lease WHERE resource LIKE 'singleton:%'")
        if point.endswith("publish_key_commit"):
            self.conn.execute("DELETE FROM published_key")

    def passed(self) -> set[str]:
        return set((self.home / "passed").read_text().split())

    def statuses(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for kind in Kind:
            for status, count in self.conn.execute(f"SELECT status, count(*) FROM {kind.table} GROUP BY 1"):
                found[status] = found.get(status, 0) + count
        return found

    def finish(self, timeout: float = 60.0) -> None:
        """A process without an appointment works until every row is final, then is asked to stop."""
        if self.rival is not None:
            _wake(self.rival)
        pid = self.spawn(Death(), posts=0, seconds=timeout + 10)
        try:
            wait_until(
                lambda: set(self.statuses()) == {"completed"} and (self.home / "posted").exists(),
                timeout,
                "every row completed",
            )
        except AssertionError:
            raise AssertionError(f"not completed: {self.statuses()}") from None
        finally:
            (self.home / "stop").touch()
            if self.rival is not None:
                _end(self.rival)
                self.rival = None
            assert os.waitpid(pid, 0)[1] == 0
            (self.home / "stop").unlink()
        self.unposted.clear()

    def compare(self) -> None:
        """Rows, slots and chain."""
        topics = sorted(set(REQUEST_EVENTS.values()))
        logs = self.devnet.rpc.call(
            "eth_getLogs", {"fromBlock": hex(self.start), "toBlock": "latest", "topics": [topics]}
        )
        refs = [bytes.fromhex(entry["topics"][1][2:]) for entry in logs]
        rows = [
            bytes(row[0])
            for kind in Kind
            for row in self.conn.execute(f"SELECT gw_reference_id FROM {kind.table} WHERE status = 'completed'")
        ]
        assert len(refs) == len(set(refs)) == len(rows), (
            len(refs),
            len(set(refs)),
            len(rows),
            self.posted,
        )
        assert set(refs) == set(rows)
        nonces = [row[0] for row in self.conn.execute("SELECT nonce FROM nonce_slot ORDER BY nonce")]
        (following,) = self.conn.execute("SELECT max(next_nonce) FROM signer").fetchone() or (0,)
        assert nonces == list(range(following - len(nonces), following))
        assert len(nonces) == len(rows)
        self.rows = len(rows)
        assert self.conn.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)
        assert self.conn.execute("SELECT count(*) FROM review_case").fetchone() == (0,)
        assert self.conn.execute(
            "SELECT count(*) FROM nonce_slot WHERE state NOT IN ('mined', 'final')"
        ).fetchone() == (0,)


@pytest.fixture
def ground(
    devnet: Devnet, settings: Any, conn: psycopg.Connection[Any], tmp_path: Path, monkeypatch: Any
) -> Iterator[Field]:
    """The devnet with its bots, one account, one signer, short pauses."""
    from workers import broadcast, settle, signers

    _point_at(devnet, settings)
    monkeypatch.setattr(broadcast, "MAINTENANCE_SECONDS", 0.2)
    monkeypatch.setattr(settle, "ORPHAN_SECONDS", 0.2)
    monkeypatch.setattr(signers, "SYNC_SECONDS", 0.5)
    conn.execute("TRUNCATE envelope_meta, envelope_blob")
    issue_key(conn, insert_account(conn, "crash"), KEY)
    warm = Client(raise_request_exception=False).get("/v2/input-proof/0")  # what every child needs is loaded once, here
    field_ = Field(tmp_path, devnet, conn, Traffic(devnet.deployment, operator=1), devnet.rpc.head() + 1)
    yield field_
    for pid in field_.children:
        _end(pid)
    field_.traffic.close()
    assert warm.status_code in (401, 404)
    for cached in (config.cache_clear, forget_settings, forget_keys):
        cached()


def _point_at(devnet: Devnet, settings: Any) -> None:
    gateway, host = devnet.deployment.gateway, devnet.deployment.host
    settings.GATEWAY_CHAIN_ID, settings.GATEWAY_RPC_URLS = gateway["chain_id"], gateway["rpc_urls"]
    settings.DECRYPTION_ADDRESS = gateway["decryption"]
    settings.INPUT_VERIFICATION_ADDRESS = gateway["input_verification"]
    settings.FEE_TOKEN_ADDRESS = gateway["fee_token"]
    settings.GATEWAY_START_BLOCK = devnet.rpc.head() + 1
    settings.GATEWAY_SIGNER_KEYS = devnet.deployment.raw["relayer_signer_keys"][1:2]
    settings.HOST_CHAINS = [
        {
            "chain_id": host["chain_id"],
            "url": host["rpc_url"],
            "acl_address": host["acl"],
            "protocol_config_address": host["protocol_config"],
            "kms_generation_address": host["kms_generation"],
        }
    ]
    settings.PROTOCOL_CONFIG_ADDRESS, settings.KMS_GENERATION_ADDRESS = host["protocol_config"], host["kms_generation"]
    settings.READINESS_INTERVAL_SECONDS = 0.3
    settings.JOB_LEASE_SECONDS = 2
    settings.API_AUTH = "required"
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "whitenoise" not in name]
    for cached in (config.cache_clear, forget_settings, forget_keys):
        cached()


def _wake(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _end(pid: int) -> None:
    for number in (signal.SIGKILL, signal.SIGCONT):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


@pytest.mark.full
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(600)
def test_every_point_kills_and_the_next_process_makes_it_good(ground: Field) -> None:
    _matrix(ground, lambda number: [CI_KINDS[(SEED + number) % len(CI_KINDS)]], seconds=CI_SECONDS)


@pytest.mark.full
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(1800)
def test_every_point_in_every_way(ground: Field) -> None:
    _matrix(ground, lambda number: list(KINDS), seconds=float("inf"))


def _matrix(ground: Field, kinds: Callable[[int], list[str]], seconds: float) -> None:
    names = {name for name, _ in crash_point_names()}
    ground.record()
    points = sorted(ground.passed() & names)
    assert {name for name in names - set(points) if not _elsewhere(name)} == set(), (
        "neither reached here nor named as reached elsewhere"
    )
    print(f"crash matrix: seed {SEED}, {len(points)} points of {len(names)} in the life of a request")
    missed, done, until = [], 0, monotonic() + seconds
    turned = SEED * 7 % len(points)
    for number, point in enumerate(points[turned:] + points[:turned]):
        if monotonic() >= until:
            break
        for kind in kinds(number):
            # The one that lives on from before may have done all the work: then once more, without it.
            if not (ground.die(Death(point, kind)) or ground.die(Death(point, kind))):
                missed.append(f"{point} ({kind})")
            done += 1
            if done % COMPARE_EVERY == 0:
                ground.finish()
                ground.compare()
    ground.finish()
    ground.compare()
    print(
        f"{done} deaths {dict(ground.deaths)}, {ground.rows} rows, all completed with one request event each; missed: {missed}"
    )
    assert missed == []
    assert done >= min(LEAST, len(points))


def _elsewhere(name: str) -> bool:
    return any(fnmatchcase(name.partition("_")[2], pattern) for patterns in ELSEWHERE.values() for pattern in patterns)
