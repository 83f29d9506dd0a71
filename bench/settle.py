"""The settle path's figures: `make bench-settle`. Bar P2 of the design, without RPC latency: lease, TX1, TX2, acknowledgement.

Every payment goes the production's way: its authorization becomes calldata, it is held in the hash-chained journal, gets a nonce, is signed
and stored (TX1), a node that takes everything at once answers, and the answer, the state and the job are recorded (TX2). Compared in the
same run with the rate at which one core signs by eth_account, and with the same path one payment at a time. An embedded PostgreSQL of its
own with default durability, in a directory that is removed afterwards.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from bench.envelope_scene import Connection
from bench.ground import own_database
from bench.table import Table, leave, publish

if TYPE_CHECKING:
    from requests_app.store.attempts import Outgoing
    from requests_app.store.signing import Fence
    from requests_app.transitions.sending import Price, Wanted
    from workers.broadcast import Sent
    from workers.senders import Examined, Trace
    from workers.settling import Item

CHAIN_ID: Final = 654321
TOKEN, PAYER, MERCHANT = "0x" + "d1" * 20, "0x" + "a2" * 20, "0x" + "b3" * 20
BATCH: Final = 500
GAS: Final = 90_000
SIGNATURES: Final = 1500
FORK: Final = multiprocessing.get_context("fork")


def fill(conn: Connection, count: int) -> None:
    """Authorized payments with their jobs."""
    from requests_app.identity import payment_ref

    chain, amount = f"evm:{CHAIN_ID}", 1_000_000
    account = conn.execute(
        "INSERT INTO client_account (name) VALUES ('bench') ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id"
    ).fetchone()
    assert account is not None
    names = [f"pi_{os.urandom(12).hex()}" for _ in range(count)]
    refs = [payment_ref(name, chain, TOKEN, PAYER, MERCHANT, amount) for name in names]
    conn.execute(
        """INSERT INTO payment_intent (public_id, ref, account_id, chain, token, payer, merchant, amount, state, version, "authorization")
           SELECT name, ref, %s, %s, %s, %s, %s, %s, 'authorized', 2,
                  jsonb_build_object('valid_after', '0', 'valid_before', '4000000000', 'nonce', '0x' || encode(ref, 'hex'),
                                     'signature', '0x' || repeat('1b', 65))
             FROM unnest(%s::text[], %s::bytea[]) AS t(name, ref)""",
        (account[0], chain, TOKEN, PAYER, MERCHANT, amount, names, refs),
    )
    conn.execute(
        """INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id)
           SELECT 'settle', public_id || '/settle', 4, id, account_id FROM payment_intent WHERE public_id = ANY(%s) ORDER BY id""",
        (names,),
    )
    conn.execute("ANALYZE queue_job; ANALYZE payment_intent")


class Taking:
    """A sender (`workers.senders.Sender`) whose node takes everything at once."""

    def __init__(self, fence: Fence, signer_id: int, key: bytes) -> None:
        from workers.chain.signer import LocalSigner

        self.fence, self.signer_id = fence, signer_id
        self._signer = LocalSigner(key, CHAIN_ID)

    def examine(self, items: Sequence[Item]) -> list[Examined]:
        """The calldata of each; the simulation is the node's work."""
        from requests_app.states import Kind
        from requests_app.store.queue import Subject
        from requests_app.transitions.sending import Held, Wanted
        from workers.chain.payments import encode_transfer
        from workers.senders import Examined, Verdict

        found = []
        for item in items:
            one = item.case.intent
            call = encode_transfer(one.token, one.payer, one.merchant, one.amount, one.authorization or {})
            held = Held(Subject(Kind.PAYMENT, one.id), item.receipt)
            found.append(Examined(Verdict.READY, wanted=Wanted(held, call.to, call.data, GAS)))
        return found

    def price(self) -> Price | None:
        """Fees that do not move."""
        from requests_app.transitions.sending import Price

        return Price(2 * 10**9, 10**9)

    def sign(self, wanted: Wanted, nonce: int, price: Price) -> tuple[bytes, bytes]:
        """As a lane does."""
        return self._signer.sign(nonce, wanted.to, wanted.data, wanted.gas, price.max_fee, price.max_priority)

    def transmit(self, items: Sequence[Outgoing]) -> list[Sent]:
        """Taken, all of them."""
        from workers.broadcast import Sent
        from workers.chain.errors import SendClass

        return [Sent(item, SendClass.ACCEPTED, None, False) for item in items]

    def react(self, sent: Sequence[Sent]) -> None:
        """Nothing to do."""

    def find(self, items: Sequence[Outgoing]) -> list[Trace | None] | None:
        """Nothing was ever lost."""
        return [None] * len(items)


def open_sender(conn: Connection, number: int) -> Taking:
    """A held signer."""
    from requests_app.store import signing
    from requests_app.store.signing import Fence
    from workers.chain.signer import LocalSigner

    key, resource = bytes([number + 1]) * 32, f"signer:bench:{number}"
    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES (%s, 'bench', 1, 'infinity') ON CONFLICT DO NOTHING",
        (resource,),
    )
    address, fence = LocalSigner(key, CHAIN_ID).address, Fence(resource, "bench", 1)
    signing.ensure_signers(conn, CHAIN_ID, [address])
    synced = signing.sync_signer(conn, fence, CHAIN_ID, address, latest=0, pending=0, balance=10**18)
    return Taking(fence, synced.signer.id, key)


def drain(conn: Connection, number: int, batch: int) -> int:
    """Settle until the queue is empty; how many payments."""
    from workers.settle_routes import make_settler

    settler, done = make_settler(conn, open_sender(conn, number), f"bench-{number}"), 0
    while handled := settler.run(batch):
        done += len(handled)
    return done


def settle_rate(conn: Connection, count: int, batch: int) -> float:
    """Payments a second of one process."""
    fill(conn, count)
    open_sender(conn, 0)
    started = perf_counter()
    assert drain(conn, 0, batch) == count
    return count / (perf_counter() - started)


def _child(number: int, gate: Any, done: Any) -> None:
    from requests_app.store.session import connect

    with connect("worker", name=f"bench-{number}") as conn:
        conn.execute("SET lock_timeout = 0")  # a loaded machine is slow, not stuck
        open_sender(conn, number)
        gate.wait()
        done.put(drain(conn, number, BATCH))
    os._exit(0)


def two_rate(conn: Connection, count: int) -> float:
    """Payments a second of two processes with a signer each, on one journal."""
    fill(conn, count)
    gate, done = FORK.Barrier(3), FORK.SimpleQueue()
    children = [FORK.Process(target=_child, args=(number, gate, done)) for number in (0, 1)]
    for child in children:
        child.start()
    gate.wait()
    started = perf_counter()
    for child in children:
        child.join()
    took = perf_counter() - started
    if any(child.exitcode for child in children):
        raise RuntimeError("a process of the bench has failed")
    assert sum(done.get() for _ in children) == count
    return count / took


def signing_rate() -> float:
    """Signatures a second of one core by eth_account with coincurve, of the very transactions that payments are."""
    from eth_account import Account

    from requests_app.addresses import checksummed

    key = b"\x01" * 32
    fields = {
        "chainId": CHAIN_ID, "type": 2, "to": checksummed(b"\xd1" * 20), "value": 0, "gas": GAS, "maxFeePerGas": 2 * 10**9,
        "maxPriorityFeePerGas": 10**9, "data": b"\xe3" * 292,
    }  # fmt: skip
    started = perf_counter()
    for nonce in range(SIGNATURES):
        Account.sign_transaction({**fields, "nonce": nonce}, key)
    return SIGNATURES / (perf_counter() - started)


def _signing_child(gate: Any, done: Any) -> None:
    gate.wait()
    done.put(signing_rate())
    os._exit(0)


def two_signing_rate() -> float:
    """Signatures a second of two processes that share nothing: what two of this machine's cores are worth."""
    gate, done = FORK.Barrier(3), FORK.SimpleQueue()
    children = [FORK.Process(target=_signing_child, args=(gate, done)) for _ in range(2)]
    for child in children:
        child.start()
    gate.wait()
    for child in children:
        child.join()
    return float(done.get() + done.get())


def check(conn: Connection) -> None:
    """Whatever was measured is right: one hold, one slot, one attempt each, a dense journal, balances that sum to nothing."""
    row = conn.execute(
        """SELECT (SELECT count(*) FROM payment_intent WHERE state = 'confirming'), (SELECT count(*) FROM payment_intent),
                  (SELECT count(*) FROM ledger_entry), (SELECT max(seq) FROM ledger_entry), (SELECT count(*) FROM tx_attempt WHERE state = 'accepted'),
                  (SELECT count(*) FROM queue_job), (SELECT sum(pending) FROM ledger_balance)"""
    ).fetchone()
    assert row is not None
    assert len({*row[:5]}) == 1, row
    assert row[5:] == (0, 0), row


def medians(*measures: Callable[[], float], rounds: int) -> list[float]:
    """The median of each, measured in turn so that the machine's moods hit all."""
    found = [[measure() for measure in measures] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def measure(conn: Connection, table: Table, count: int, rounds: int) -> None:
    """Every rate, and the ratios that have a bar."""
    settle_rate(conn, BATCH, BATCH)  # plans, pages and imports are warm
    signed, signed_by_two, ours, loop, hundred, two = medians(
        signing_rate,
        two_signing_rate,
        lambda: settle_rate(conn, count, BATCH),
        lambda: settle_rate(conn, max(100, count // 25), 1),
        lambda: settle_rate(conn, count, 100),
        lambda: two_rate(conn, 2 * count),
        rounds=rounds,
    )
    check(conn)
    table.least("signatures by eth_account + coincurve, one core", signed, "tx/s")
    table.least("P2 settle path, batches of 500, one process", ours, "payments/s")
    table.least("batches of 100", hundred, "payments/s")
    table.least("one payment a transaction", loop, "payments/s")
    table.least("two processes", two, "payments/s")
    table.least("P2 settle path / signing rate", ours / signed, "x", 1.5)
    table.least("P2 settle path / one payment a transaction", ours / loop, "x", 10)
    note = f"signing alone, which shares nothing: {signed_by_two / signed:.2f}"
    table.least("P2 two processes / one", two / ours, "x", 1.6, note=note)


def main() -> None:
    """Run everything and print the table; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payments", type=int, default=5000, help="payments of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write the results there")
    options = parser.parse_args()
    table = Table()
    with own_database(LOG_LEVEL="ERROR") as conn:
        conn.execute("SET statement_timeout = 0")
        measure(conn, table, options.payments, options.rounds)
        publish(table, options.json)
    leave(table)


if __name__ == "__main__":
    main()
