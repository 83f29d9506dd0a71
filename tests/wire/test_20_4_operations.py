"""fhevm_http 20.4 against the running stack: health, keys, recovery, several listeners."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.stack.harness import ROOT, kill
from tests.waiting import wait_until
from tests.wire.aimed import internal
from tests.wire.bodies import mark
from tests.wire.client import Client, Response
from tests.wire.world import World
from workers.devnet.accounts import wallet
from workers.devnet.contracts import contract
from workers.devnet.layout import HOST_CHAIN_ID
from workers.devnet.published import CRS_ID, KEY_ID
from workers.devnet.sending import Call, Sender
from workers.devnet.traffic import FORMS
from workers.devnet.verify import REQUEST_EVENTS


def test_20_4_liveness_and_version(world: World) -> None:
    alive = world.client.get("/liveness")
    assert (alive.status, alive.body) == (200, {"status": "alive"})
    version = world.client.get("/version")
    assert version.status == 200
    assert set(version.body) == {"name", "version", "build"}
    assert all(isinstance(value, str) for value in version.body.values())
    assert re.search(r"-(clean|dirty)$", version.body["build"])


def test_20_4_healthz(world: World) -> None:
    # A test before may have killed a process that is still on its way back.
    wait_until(lambda: world.client.get("/healthz").status == 200, 60, "healthy")
    response = world.client.get("/healthz")
    assert response.status == 200
    assert response.body["status"] == "healthy"
    assert {"database", "gateway_http", "gateway_listener_0"} <= set(response.body["dependencies"])
    assert set(response.body["dependencies"].values()) == {"ok"}


def test_20_4_keyurl(world: World) -> None:
    """Exactly these keys; public material needs no API key."""
    response = Client(world.stack.url, None).get("/v2/keyurl")
    assert response.status == 200
    base = f"{world.stack.deployment.raw['kms'][0]['storage_url']}/{world.stack.deployment.raw['kms'][0]['storage_prefix']}"
    key_id = response.body["response"]["fheKeyInfo"][0]["fhePublicKey"]["dataId"]
    assert response.body == {
        "status": "succeeded",
        "response": {
            "fheKeyInfo": [{"fhePublicKey": {"dataId": key_id, "urls": [f"{base}/PublicKey/{key_id[2:]}"]}}],
            "crs": {"2048": {"dataId": f"0x{CRS_ID:064x}", "urls": [f"{base}/CRS/{CRS_ID:064x}"]}},
        },
    }


def test_20_4_keyurl_poller_publishes_a_changed_key(world: World) -> None:
    """The poller looks every 12 s; both keys are set back afterwards."""
    urls = ["http://127.0.0.1/other"]
    with active_key(world, KEY_ID + 4, urls):
        wait_until(lambda: published(world) == f"0x{KEY_ID + 4:064x}", 90, "the changed key")
    wait_until(lambda: published(world) == f"0x{KEY_ID:064x}", 90, "the former key")


def published(world: World) -> str:
    return str(world.client.get("/v2/keyurl").body["response"]["fheKeyInfo"][0]["fhePublicKey"]["dataId"])


@contextmanager
def active_key(world: World, key_id: int, urls: list[str]) -> Iterator[None]:
    raw = world.stack.deployment.raw
    deployer = world.stack.deployment.raw["host_deployer_key"]
    sender = Sender(world.host_rpc, wallet(bytes.fromhex(deployer[2:])), HOST_CHAIN_ID)
    address = raw["host_chains"][0]["kms_generation"]

    def activate(number: int) -> None:
        sender.run([Call(address, contract("KMSGeneration").call("activateKey", number, urls, [(1, bytes(32))]))])

    activate(key_id)
    try:
        yield
    finally:
        activate(KEY_ID)


TPS = ("input_proof_throttler_tps", "user_decrypt_throttler_tps", "public_decrypt_throttler_tps")


def test_20_4_admin_config(world: World) -> None:
    """Off: 403. On, with an operator's key: each throttler is set, out of range and unknown names are refused."""
    with world.another_web(ADMIN_CONFIG="0") as off:
        closed = off.get("/admin/config")
        assert (closed.status, closed.body) == (403, {"error": "Admin endpoints are not enabled"})
        assert off.post("/admin/config", {"param": TPS[0], "value": 20}).status == 403
    with operator(world):
        # Each web process remembers a key for two seconds: all of them must have forgotten what it was.
        wait_until(lambda: all(world.client.get("/admin/config").status == 200 for _ in range(20)), 60, "operator")
        for name in TPS:
            for value, text in ((0, "greater than 0"), (1001, "less than or equal to 1000")):
                refused = configure(world, name, value)
                assert refused.status == 400
                assert text in refused.body["error"]
            for value in (1, 1000, 20):
                response = configure(world, name, value)
                assert (response.status, response.body["name"], response.body["value"]) == (200, name, value)
                assert "success" in response.body["message"]
        assert configure(world, "unknown", 1).body["error"].startswith("Unknown configuration parameter")


def configure(world: World, name: str, value: int) -> Response:
    raw = json.dumps({"param": name, "value": value}).encode()
    return world.client.exchange("POST", "/admin/config", raw, {"content-type": "application/json"})


@contextmanager
def operator(world: World) -> Iterator[None]:
    with world.stack.database() as conn:
        conn.execute("UPDATE client_account SET operator = true")
        try:
            yield
        finally:
            conn.execute("UPDATE client_account SET operator = false")


def test_20_4_recovery_in_queued_processing_and_in_flight(world: World) -> None:
    """Every process that could hold them dies while the rows wait in three states; each completes under its old job id."""
    queued = world.allow(world.draft("public_decrypt"), commit=False)
    processing, in_flight = world.submission("user_decrypt"), world.submission("unified")
    with ExitStack() as faults:
        faults.enter_context(world.gateway_error("eth_estimateGas", processing, internal()))
        faults.enter_context(world.gateway_error("eth_sendRawTransaction", in_flight, internal()))
        jobs = [world.post(one) for one in (queued, processing, in_flight)]
        for job, status in zip(jobs, ("queued", "processing", "tx_in_flight"), strict=True):
            world.wait_status(job, status)
            world.give_time(job)  # whoever works on them has to start again first
        for words in (("relayer_cluster", "settle"), ("relayer_listener",), ("relayer_site.web",)):
            kill(world.stack.first(*words))
        assert [world.row(job).status for job in jobs] == ["queued", "processing", "tx_in_flight"]
    world.allow(queued)
    wait_until(world.client.alive, 120, "the API after its death")
    for one, job in zip((queued, processing, in_flight), jobs, strict=True):
        assert world.result_of(one, job).status == 200
    reference = world.row(jobs[2]).gw_reference_id.hex()
    topic = REQUEST_EVENTS["unified"]
    gateway = world.stack.deployment.gateway["decryption"]
    assert len(world.stack.rpc.logs([gateway], [topic, "0x" + reference], 0, world.stack.rpc.head())) == 1


@pytest.mark.parametrize("dies", ["nobody", "the first", "the other"])
def test_20_4_listeners(world: World, dies: str) -> None:
    """Two listeners run: whoever of them is left, each request completes once."""
    environment = world.environment_with(RELAYER_ROLE="worker")
    line = [sys.executable, str(ROOT / "manage.py"), "relayer_listener"]
    with subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        try:
            if dies == "the first":
                kill(world.stack.first("relayer_listener"))
            elif dies == "the other":
                other.kill()
            submissions = [world.submission(form) for form in FORMS]
            jobs = [world.post(one) for one in submissions]
            for one, job in zip(submissions, jobs, strict=True):
                assert world.result_of(one, job).status == 200, mark(one)
                steps = world.client.get(f"/v1/requests/{job}/timeline").body["transitions"]
                assert [step["to_status"] for step in steps].count("completed") == 1
        finally:
            other.kill()
