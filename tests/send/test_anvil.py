"""Readiness and send against the real node and the devnet's contracts: every form, exactly one request event each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from requests_app.api import intake
from requests_app.config import config
from requests_app.identity import content_hash
from requests_app.services import Submission, submit
from requests_app.states import Kind, Status
from requests_app.store.queue import Subject
from requests_app.store.session import connect
from tests.core.rows import insert_account, read_request
from tests.devnet.conftest import chain, layout_at
from tests.send.conftest import Context
from tests.send.scenes import change, expire_leases
from tests.waiting import wait_until
from workers import receipts
from workers.chain import open_clients
from workers.chain.hexdata import hex_data
from workers.devnet import anvil
from workers.devnet.contracts import contract
from workers.devnet.deploy import deploy
from workers.devnet.deployment import Deployment
from workers.devnet.sending import Call, Sender
from workers.devnet.traffic import FORMS, Form, Traffic
from workers.leases import LeaseKeeper
from workers.readiness import ReadinessTurn
from workers.settle import SettleTurn

pytestmark = pytest.mark.django_db(transaction=True)
READERS: dict[Form, Callable[[bytes], intake.Intake]] = {
    "input_proof": intake.input_proof,
    "public_decrypt": intake.public_decrypt,
    "user_decrypt": intake.direct,
    "delegated": intake.delegated,
    "unified": intake.unified,
}


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Both chains with their contracts, without bots."""
    layout = layout_at(tmp_path_factory.mktemp("send-devnet"))
    with ExitStack() as stack:
        for service in anvil.CHAINS:
            stack.enter_context(chain(layout, service, quick=True))
        deploy(layout)
        yield Deployment.read(layout.deployment)


@pytest.fixture
def world(chains: Deployment, settings: Any, conn: psycopg.Connection[Any]) -> Iterator[Any]:
    """One process with one signer on these chains, and a client who submits."""
    gateway, host = chains.gateway, chains.host
    settings.GATEWAY_CHAIN_ID, settings.GATEWAY_RPC_URLS = gateway["chain_id"], gateway["rpc_urls"]
    settings.DECRYPTION_ADDRESS, settings.INPUT_VERIFICATION_ADDRESS = (
        gateway["decryption"],
        gateway["input_verification"],
    )
    settings.GATEWAY_SIGNER_KEYS = chains.raw["relayer_signer_keys"][:1]
    settings.HOST_CHAINS = [{"chain_id": host["chain_id"], "url": host["rpc_url"], "acl_address": host["acl"]}]
    config.cache_clear()
    context = Context(connect("worker"), "anvil", LeaseKeeper("anvil", 10), open_clients(config()))
    traffic = Traffic(chains)
    account = insert_account(conn)

    def add(*forms: Form, **options: Any) -> list[Subject]:
        subjects = []
        for one in traffic.build(forms, **options):
            read = READERS[one.form](json.dumps(one.body).encode())
            body_hash = content_hash(read.kind, read.req_type, read.body)
            done = submit(conn, Submission(read.kind, read.req_type, body_hash, read.body), client_id=account)
            assert done.request_id is not None
            subjects.append(Subject(read.kind, done.request_id))
        return subjects

    yield SimpleNamespace(context=context, add=add, conn=conn, chains=chains)
    traffic.close()
    context.leases.close()
    context.clients.close()
    context.conn.close()
    config.cache_clear()


def statuses(world: Any, subjects: list[Subject]) -> list[str]:
    return [read_request(world.conn, s.kind, s.id).status for s in subjects]


def mined(world: Any, subjects: list[Subject]) -> list[Any]:
    """The receipts of the rows' transactions, waited for."""
    hashes = [bytes(read_request(world.conn, s.kind, s.id).gw_req_tx_hash) for s in subjects]

    def all_there() -> list[Any] | None:
        found = [answer.value for answer in world.context.clients.gateway.receipts(hashes)]
        return found if all(found) else None

    found = wait_until(all_there, 60, "receipts")
    assert found is not None
    return found


def as_owner(world: Any, function: str) -> None:
    with world.chains.gateway_rpc() as rpc:
        owner = Sender(rpc, world.chains.deployer, world.chains.gateway["chain_id"])
        owner.run([Call(world.chains.gateway["decryption"], contract("Decryption").call(function))])


def test_every_form_is_checked_sent_and_emits_one_request(world: Any) -> None:
    first = world.context.clients.gateway.head_number()
    subjects = world.add(*FORMS, *FORMS)
    settle = SettleTurn()
    assert settle.run(world.context) == 2
    assert ReadinessTurn().run(world.context) == 8
    assert settle.run(world.context) == 8
    assert statuses(world, subjects) == ["tx_in_flight"] * 10
    assert [receipt.status for receipt in mined(world, subjects)] == [1] * 10
    head = world.context.clients.gateway.head_number()
    found = world.context.clients.gateway.events(first, head)
    hashes = {hex_data(bytes(read_request(world.conn, s.kind, s.id).gw_req_tx_hash)) for s in subjects}
    requested = [hex_data(item.tx_hash) for item in found.envelopes if hex_data(item.tx_hash) in hashes]
    # The decryption contract emits its request event in two forms; each row has one transaction.
    assert set(requested) == hashes
    assert len({item.ref for item in found.envelopes if hex_data(item.tx_hash) in hashes}) == 10
    settle.close()


def test_a_successor_broadcasts_the_same_bytes_and_the_node_knows_them(world: Any, monkeypatch: Any) -> None:
    class Killed(BaseException):
        pass

    def kill(name: str) -> None:
        if name == "before_record_sends_commit":
            raise Killed

    subjects = world.add("input_proof", "input_proof", "input_proof")
    dead = SettleTurn()
    with monkeypatch.context() as patch:
        patch.setattr("workers.broadcast.crash_point", kill)
        with pytest.raises(Killed):
            dead.run(world.context)
    dead.close()
    states = "SELECT DISTINCT state FROM tx_attempt"
    assert world.conn.execute(states).fetchall() == [("prepared",)]
    SettleTurn().run(world.context)
    assert [receipt.status for receipt in mined(world, subjects)] == [1] * 3
    assert world.conn.execute("SELECT count(*) FROM tx_attempt").fetchone() == (3,)
    assert world.conn.execute(states).fetchall()[0][0] in {"accepted", "mined", "unknown", "prepared"}


def test_denied_unready_and_paused_requests_end_or_wait_as_the_contracts_say(world: Any) -> None:
    (denied,) = world.add("user_decrypt", set_up=False)
    ReadinessTurn().run(world.context)
    expire_leases(world.conn)
    ReadinessTurn().run(world.context)
    row = read_request(world.conn, denied.kind, denied.id)
    assert (row.status, row.fail_label) == ("failure", "not_allowed_on_host_acl")
    (paused,) = world.add("public_decrypt")
    ReadinessTurn().run(world.context)
    as_owner(world, "pause")
    try:
        SettleTurn().run(world.context)
        expire_leases(world.conn)
        SettleTurn().run(world.context)
    finally:
        as_owner(world, "unpause")
    row = read_request(world.conn, paused.kind, paused.id)
    assert (row.status, row.fail_label, bytes(row.fail_selector).hex()) == ("failure", "protocol_paused", "d93c0665")


def test_a_transaction_that_reverts_in_its_block_is_a_failure_with_the_contract_s_reason(world: Any) -> None:
    (subject,) = world.add("public_decrypt")
    ReadinessTurn().run(world.context)
    turn = SettleTurn()
    # Estimated while the contract worked, mined while it was paused.
    gateway = world.context.clients.gateway
    estimated = gateway.estimate_gas

    def estimate_then_pause(*arguments: Any) -> Any:
        answers = estimated(*arguments)
        as_owner(world, "pause")
        return answers

    object.__setattr__(world.context.clients, "gateway", _Wrapped(gateway, estimate_gas=estimate_then_pause))
    try:
        turn.run(world.context)
        assert statuses(world, [subject]) == ["tx_in_flight"]
        assert mined(world, [subject])[0].status == 0

        def judged() -> bool:
            world.conn.execute("UPDATE tx_attempt SET first_sent_at = first_sent_at - interval '9 seconds'")
            for lane in turn._pool._lanes.values():  # type: ignore[union-attr]
                lane.look_at.clear()
                receipts.look_up(world.context, lane)
            return statuses(world, [subject]) == [Status.FAILURE.value]

        wait_until(judged, 60, "the revert is final")
    finally:
        as_owner(world, "unpause")
    row = read_request(world.conn, Kind.PUBLIC_DECRYPT, subject.id)
    assert (row.fail_label, bytes(row.fail_selector).hex()) == ("protocol_paused", "d93c0665")


class _Wrapped:
    """A client with one method replaced."""

    def __init__(self, inner: Any, **methods: Any) -> None:
        self._inner = inner
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_not_ready_waits_for_the_ciphertext(world: Any) -> None:
    (subject,) = world.add("public_decrypt")
    row = world.conn.execute("SELECT body FROM request_payload WHERE request_id = %s AND kind = 2", (subject.id,))
    handles = [bytes.fromhex(text[2:]) for text in row.fetchone()[0]["handles"]]
    traffic = Traffic(world.chains)
    traffic.commit(handles, key_id=0)
    turn = ReadinessTurn()
    turn.run(world.context)
    assert statuses(world, [subject]) == ["queued"]
    traffic.commit(handles)
    world.conn.execute("UPDATE queue_job SET visible_at = now()")
    change(world.conn, subject, "deadline_at = now()")
    turn.run(world.context)
    traffic.close()
    assert statuses(world, [subject]) == ["processing"]
