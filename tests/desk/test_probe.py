"""The probe: every endpoint is asked by itself, nothing is sent, a node that is away is said to be away."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from requests_app import models, probing
from requests_app.config import Config
from requests_app.probing import NodeReport, Question, Receipt, Sighting
from requests_app.states import Kind
from tests.chain.bodies import GATEWAY
from tests.chain.stub_node import json_reply, results, stub_node
from tests.desk.people import parked, person
from tests.desk.scene import HOSTILE, Scene
from workers.chain import probe
from workers.chain.rpc import is_read

MINED, PENDING, GONE = b"\x01" * 32, b"\x02" * 32, b"\x03" * 32
ACCOUNT, REFERENCE = b"\x0a" * 20, (77).to_bytes(32, "big")


def text(raw: bytes) -> str:
    return "0x" + raw.hex()


def value(method: str, params: Any) -> Any:
    """What a healthy node says."""
    if method == "eth_chainId":
        return hex(GATEWAY.chain_id)
    if method == "eth_getBlockByNumber":
        number = 90 if params[0] == "latest" else 60
        return {"number": hex(number), "hash": text(b"\xaa" * 32), "parentHash": text(b"\xbb" * 32), "timestamp": "0x1"}
    if method == "eth_getTransactionCount":
        return {"latest": "0x5", "pending": "0x7", "finalized": "0x4"}[params[1]]
    if method == "eth_getBalance":
        return "0xde0b6b3a7640000"
    if method == "eth_call":
        return text((1).to_bytes(32, "big"))
    if params[0] == text(GONE) or (method == "eth_getTransactionReceipt" and params[0] == text(PENDING)):
        return None
    shared = {"from": text(ACCOUNT), "to": text(GATEWAY.decryption), "blockHash": None, "blockNumber": None}
    if params[0] == text(MINED):
        shared |= {"blockHash": text(b"\xcc" * 32), "blockNumber": "0x50"}
    if method == "eth_getTransactionReceipt":
        return {**shared, "transactionHash": params[0], "status": "0x0", "gasUsed": "0x1", "logs": []}
    return {**shared, "hash": params[0], "nonce": "0x4", "input": "0x"}


def ask(*urls: str, kind: Kind = Kind.USER_DECRYPT) -> list[NodeReport]:
    chains = Config(dataclasses.replace(GATEWAY, rpc_urls=tuple(urls)), {}, 9)
    return probe.Prober(lambda: chains).ask(Question(kind, [MINED, PENDING, GONE], ACCOUNT, REFERENCE))


def test_one_report_a_node_with_everything_a_reviewer_needs() -> None:
    with stub_node(lambda document, _: json_reply(results(document, value))) as node:
        (report,) = ask(node.url)
        methods = {
            call["method"]
            for request in node.requests
            for call in (request if isinstance(request, list) else [request])
        }
    assert all(is_read(method) for method in methods)
    assert (report.head, report.finalized, report.balance, report.error) == (90, 60, 10**18, None)
    assert report.nonces == {"latest": 5, "pending": 7, "finalized": 4}
    assert report.flags == {"decryption done": True}
    assert list(report.sightings) == [
        Sighting(MINED, Receipt(80, 0), known=True, pending=False),
        Sighting(PENDING, None, known=True, pending=True),
        Sighting(GONE, None, known=False, pending=False),
    ]


def test_proofs_have_their_own_flags() -> None:
    with stub_node(lambda document, _: json_reply(results(document, value))) as node:
        (report,) = ask(node.url, kind=Kind.INPUT_PROOF)
    assert set(report.flags) == {"proof verified", "proof rejected"}


def test_nodes_disagree_or_are_away_and_each_is_told_by_itself() -> None:
    def lagging(method: str, params: Any) -> Any:
        found = value(method, params)
        return {"error": {"code": -32000, "message": "no"}} if method == "eth_getTransactionReceipt" else found

    def elsewhere(method: str, params: Any) -> Any:
        return "0x1" if method == "eth_chainId" else value(method, params)

    with (
        stub_node(lambda document, _: json_reply(results(document, value))) as good,
        stub_node(lambda document, _: json_reply(results(document, lagging))) as odd,
        stub_node(lambda document, _: json_reply(results(document, elsewhere))) as foreign,
        stub_node(lambda document, _: None) as dead,
    ):
        began = time.monotonic()
        first, second, third, fourth = ask(good.url, odd.url, foreign.url, dead.url)
    assert time.monotonic() - began < 10
    assert first.error is None
    assert [one.error is not None for one in second.sightings] == [True] * 3
    assert third.error is not None
    assert "serves chain 1" in third.error
    assert fourth.error is not None


class Answering:
    """A prober that says what the test wants."""

    reports: list[NodeReport] = []  # noqa: RUF012 - one test's at a time
    asked: list[Question] = []  # noqa: RUF012

    def ask(self, question: Question) -> list[NodeReport]:
        self.asked.append(question)
        return self.reports


@pytest.mark.django_db
def test_the_page_shows_each_node_and_escapes_what_it_says(settings: Any) -> None:
    settings.CHAIN_PROBER = f"{__name__}.Answering"
    probing.prober.cache_clear()
    case = parked(Scene())
    ada = person("ada")
    Answering.asked.clear()
    hashes = models.TxAttempt.objects.order_by("-seq").values_list("tx_hash", flat=True)
    Answering.reports = [
        NodeReport("node-a", 90, 60, {"latest": 5, "pending": None, "finalized": 4}, 10**18, {"proof verified": None},
                   [Sighting(bytes(hashes[0]), Receipt(80, 1), known=True, pending=False)], 0.01),
        NodeReport("node-b", error=HOSTILE),
    ]  # fmt: skip
    try:
        page = ada.post(case, "probe").content.decode()
    finally:
        probing.prober.cache_clear()
    for words in ("node-a", "block 80: success", "node-b", "no answer", "What the nodes say"):
        assert words in page
    assert "<script>alert" not in page
    (question,) = Answering.asked
    assert list(question.hashes) == [bytes(value) for value in hashes]
    assert question.account is not None
    assert not models.Command.objects.exists()
