"""A transaction that a reviewer names: believed only when it carries the request, and nobody else's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from requests_app.config import config
from requests_app.models.commands import CommandKind
from requests_app.models.reviews import ReviewAction
from requests_app.states import Kind, Status
from requests_app.store import commands as store
from requests_app.store.commands import SINGLETON, NewCommand
from requests_app.store.signing import Fence
from requests_app.transitions.reorgs import Fork, undo
from tests.listen import world
from tests.listen.stub_chain import CHAIN_ID, StubChain, running
from tests.listen.world import Ours, answered, requested, sent, status
from tests.send.scenes import body, hold
from workers import commands
from workers.chain.calldata import encode_request
from workers.chain.clients import Clients
from workers.chain.events import REQUEST_KINDS

Connection = psycopg.Connection[Any]
HASH = b"\x5a" * 32


class Chain(StubChain):
    """With the transactions that its blocks hold."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[bytes, tuple[bytes, bytes]] = {}

    def eth_getTransactionByHash(self, tx_hash: str) -> Any:
        found = self.calls.get(bytes.fromhex(tx_hash[2:]))
        if found is None:
            return None
        return {
            "hash": tx_hash, "from": "0x" + "01" * 20, "to": "0x" + found[0].hex(), "nonce": "0x0",
            "input": "0x" + found[1].hex(), "blockNumber": "0x3", "blockHash": "0x" + self.hash(3).hex(),
        }  # fmt: skip


@pytest.fixture
def chain() -> Chain:
    return Chain()


@pytest.fixture
def clients(chain: Chain, settings: Any) -> Iterator[Clients]:
    with running(chain) as (found, _):
        settings.GATEWAY_RPC_URLS, settings.GATEWAY_CHAIN_ID = list(found.gateway.config.rpc_urls), CHAIN_ID
        settings.DECRYPTION_ADDRESS = "0x" + world.DECRYPTION.hex()
        settings.INPUT_VERIFICATION_ADDRESS = "0x" + world.INPUTS.hex()
        settings.GATEWAY_SIGNER_KEYS, settings.HOST_CHAINS, settings.FEE_TOKEN_ADDRESS = [], [], ""
        config.cache_clear()
        yield found
        config.cache_clear()


class Context:
    def __init__(self, conn: Connection, clients: Clients) -> None:
        self.conn, self.clients = conn, clients

    def stopping(self) -> bool:
        return False


@pytest.fixture
def lost(log: Connection, chain: Chain, clients: Clients) -> Ours:
    """A proof in review whose transaction is on the chain although no attempt of ours names it; its answer is logged."""
    import json

    (one,) = sent(log, Kind.INPUT_PROOF, status="needs_review", attempts=False)
    log.execute("UPDATE input_proof_req SET deadline_at = NULL")
    payload = body(Kind.INPUT_PROOF)
    log.execute("UPDATE request_payload SET body = %s", (json.dumps(payload),))
    found = Ours(one.kind, one.id, HASH, one.ref)
    event = requested(found, (3, 0))
    world.record(log, 1, 5, [event, answered(found, (5, 0))])
    world.applier().catch_up(log)
    chain.put(head=5)
    chain.mine(HASH, event)
    chain.calls[HASH] = encode_request(Kind.INPUT_PROOF, None, payload)
    hold(log, SINGLETON)
    return found


def attach(conn: Connection, clients: Clients, one: Ours, tx_hash: str = "0x" + HASH.hex()) -> tuple[Any, ...]:
    name = f"attach-{one.id}-{conn.execute('SELECT count(*) FROM command').fetchone()[0]}"
    payload = {"action": ReviewAction.ATTACH.value, "tx_hash": tx_hash}
    command = NewCommand(name, CommandKind.HITL, one.kind, one.id, SINGLETON, "ann", payload, Status.NEEDS_REVIEW)
    store.enqueue(conn, command)
    commands.serve(Context(conn, clients), Fence(SINGLETON, "one", 1), None)  # type: ignore[arg-type]
    row = conn.execute(
        "SELECT state, outcome, result ->> 'reason' FROM command WHERE command_id = %s", (name,)
    ).fetchone()
    return tuple(row)


def test_it_is_bound_and_its_logged_answer_applied(log: Connection, clients: Clients, lost: Ours) -> None:
    assert attach(log, clients, lost) == ("consumed", "applied", None)
    row = world.row(log, lost)
    assert (row.status, row.gw_reference_id, row.gw_req_tx_hash, row.receipt_block) == (
        "completed",
        lost.ref,
        HASH,
        3,
    )
    assert world.verbs(log, lost) == ["attach", "complete"]


def test_what_does_not_carry_the_request_is_refused(
    log: Connection, clients: Clients, chain: Chain, lost: Ours
) -> None:
    assert attach(log, clients, lost, "0x12")[1:] == ("rejected", "not a transaction hash")
    assert attach(log, clients, lost, "0x" + "77" * 32)[1] == "rejected"
    to, data = chain.calls[HASH]
    chain.calls[HASH] = (to, data[:-1] + b"\x01")
    assert attach(log, clients, lost)[1:] == ("rejected", "the transaction does not carry this request")
    chain.calls[HASH] = (to, data)
    chain.receipts[HASH]["status"] = "0x0"
    assert attach(log, clients, lost)[1] == "rejected"
    assert status(log, lost) == "needs_review"


def test_what_belongs_to_another_request_is_refused(log: Connection, clients: Clients, lost: Ours) -> None:
    (other,) = sent(log, Kind.INPUT_PROOF)
    log.execute("UPDATE gateway_ref SET request_id = %s WHERE gw_reference_id = %s", (other.id, lost.ref))
    assert attach(log, clients, lost)[1:] == ("rejected", "the reference belongs to another request")
    log.execute("UPDATE gateway_ref SET request_id = NULL")
    log.execute("UPDATE tx_attempt SET state = 'accepted'")
    assert status(log, lost) == "needs_review"


def test_a_silent_chain_leaves_the_command_claimed(log: Connection, clients: Clients, chain: Chain, lost: Ours) -> None:
    chain.faults["eth_getTransactionReceipt"] = {"error": {"code": -32000, "message": "busy"}}
    assert attach(log, clients, lost)[0] == "claimed"
    del chain.faults["eth_getTransactionReceipt"]
    commands.serve(Context(log, clients), Fence(SINGLETON, "one", 1), None)  # type: ignore[arg-type]
    assert status(log, lost) == "needs_review"  # the claim still stands
    log.execute("UPDATE command SET claim_until = clock_timestamp()")
    commands.serve(Context(log, clients), Fence(SINGLETON, "one", 1), None)  # type: ignore[arg-type]
    assert status(log, lost) == "completed"


def give_way(conn: Connection, block: int) -> None:
    """Everything from `block` on gives way to other blocks, of which nothing is read yet."""
    conn.execute("UPDATE exec_lease SET instance = 'test', epoch = 1 WHERE resource = 'listener:1'")
    sealed = conn.execute("SELECT block FROM chain_cursor").fetchone()[0]
    fork = Fork(block, world.block_hash(block - 1), b"n" * 32)
    undo(conn, world.SOURCE, fork, world.FENCE, sealed=sealed, request_kinds=REQUEST_KINDS)


def test_what_was_attached_is_taken_back_with_its_block(log: Connection, clients: Clients, lost: Ours) -> None:
    """References are numbers of a counter: in the other blocks another request of ours has this one, and its answer."""
    log.execute("DELETE FROM envelope_meta WHERE position >> 20 = 5")  # not answered yet
    log.execute("DELETE FROM gateway_ref")
    assert attach(log, clients, lost)[1] == "applied"
    assert status(log, lost) == "receipt_received"
    give_way(log, 3)
    row = world.row(log, lost)
    assert (row.status, row.gw_reference_id, row.receipt_block) == ("tx_in_flight", None, None)
    (other,) = sent(log, Kind.INPUT_PROOF)
    heir = Ours(other.kind, other.id, other.tx_hash, lost.ref)
    world.record(log, 3, 5, [requested(heir, (4, 0)), answered(heir, (5, 0))])
    world.applier().catch_up(log)
    assert (status(log, heir), status(log, lost)) == ("completed", "tx_in_flight")


def test_what_the_log_does_not_show_yet_waits(log: Connection, clients: Clients, chain: Chain, lost: Ours) -> None:
    """A block above the seal may give way without anybody noticing: nothing rests on it before the log has it."""
    log.execute("UPDATE chain_cursor SET block = 2")
    assert attach(log, clients, lost)[0] == "claimed"
    assert status(log, lost) == "needs_review"
    assert log.execute("SELECT count(*) FROM gateway_ref WHERE request_id IS NOT NULL").fetchone() == (0,)


def test_a_block_that_is_not_the_log_s_is_refused(log: Connection, clients: Clients, chain: Chain, lost: Ours) -> None:
    chain.forks[3] = 7
    chain.mine(HASH, dataclasses.replace(requested(lost, (3, 0)), block_hash=world.block_hash(3, 7)))
    assert attach(log, clients, lost)[1:] == ("rejected", "the log holds another block in the place of its block 3")
    assert status(log, lost) == "needs_review"
