"""Keys are where the chain says they are."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.devnet.conftest import Devnet
from workers.devnet import storage
from workers.devnet.contracts import contract
from workers.devnet.published import CRS_ID, KEY_FILES, KEY_ID


@pytest.fixture
def port() -> Iterator[int]:
    with storage.serve(0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def fetch(port: int, path: str, method: str = "GET") -> tuple[int, bytes, str | None]:
    """Status, body and the header that lets browsers in."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers["Access-Control-Allow-Origin"]


@pytest.mark.parametrize(("kind", "number"), [("PublicKey", KEY_ID), ("CRS", CRS_ID)])
def test_objects(port: int, kind: str, number: int) -> None:
    path = f"/kms-public/PUB-p1/{kind}/{number:064x}"
    assert fetch(port, path) == (200, (KEY_FILES / f"{kind}.bin").read_bytes(), "*")
    assert fetch(port, path, "HEAD")[:2] == (200, b"")


@pytest.mark.parametrize("path", ["/", "/kms-public/PUB-p1/CRS/4", "/kms-public/PUB-p1/PublicKey/../../../etc/passwd"])
def test_nothing_else(port: int, path: str) -> None:
    assert fetch(port, path)[0] == 404


def test_the_chain_names_the_keys_and_their_storage(devnet: Devnet) -> None:
    host, abi = devnet.deployment.host, contract("KMSGeneration")
    with devnet.deployment.host_rpc() as rpc:
        ids = [
            abi.result(name, rpc.eth_call(host["kms_generation"], abi.call(name)))[0]
            for name in ("getActiveKeyId", "getActiveCrsId")
        ]
        assert ids == [KEY_ID, CRS_ID]
        _, digests = abi.result("getKeyMaterials", rpc.eth_call(host["kms_generation"], abi.call("getKeyMaterials", 3)))
        _, digest = abi.result("getCrsMaterials", rpc.eth_call(host["kms_generation"], abi.call("getCrsMaterials", 4)))
        assert digests[0][1] == sha256((KEY_FILES / "PublicKey.bin").read_bytes()).digest()
        assert digest == sha256((KEY_FILES / "CRS.bin").read_bytes()).digest()
        protocol = contract("ProtocolConfig")
        context_id = int(devnet.deployment.raw["kms_context_id"], 16)
        assert context_id >> 248 == 7
        anchor = protocol.result(
            "getKmsContextAnchor",
            rpc.eth_call(host["protocol_config"], protocol.call("getKmsContextAnchor", context_id)),
        )
        event = protocol.event("NewKmsContext")
        topics = [event.topic, devnet.deployment.raw["kms_context_id"]]
        (log,) = rpc.logs([host["protocol_config"]], topics, anchor[0], anchor[0])
        nodes, thresholds, _, _ = event.decode(log)
        assert (nodes[0][3], nodes[0][7]) == (devnet.layout.ports().storage_url, "PUB-p1")
        assert len(nodes) == 13
        assert thresholds[1] == 9
