"""Workers over real PostgreSQL and a scripted chain, one step at a time: the scheduler decides who goes on, who dies, who sleeps.

A worker is a greenlet that runs the product's send turn. Each crash point is a step: there it may be killed (its session ends,
what was not committed is gone) or paused, past its lease, to go on later in the belief that nothing happened.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import greenlet
import psycopg

from requests_app.config import GatewayConfig
from requests_app.states import Kind
from requests_app.store import leases as table
from requests_app.store.queue import SEND, Subject, enqueue_jobs
from requests_app.store.session import connect
from tests.model.chain import Chain, Rates, Wire
from tests.send.node import CHAIN_ID, Tx
from tests.send.scenes import body
from workers import signers
from workers.chain.calldata import encode_request
from workers.chain.endpoints import Endpoints
from workers.chain.gateway import GatewayClient
from workers.chain.signer import LocalSigner
from workers.settle import SettleTurn
from workers.signers import SignerPool

KILL, PAUSE = 0.06, 0.04  # a step
LEASE_TICKS = 20
JOB_TICKS = 30
WORKERS = 3
WINDOW = 4
CALM_ROUNDS = 400
_ROWS = """
WITH b AS MATERIALIZED (
  SELECT body, ord, nextval(pg_get_serial_sequence('public_decrypt_req', 'id')) AS id
    FROM unnest(%(bodies)s::jsonb[]) WITH ORDINALITY AS t(body, ord)),
r AS (
  INSERT INTO public_decrypt_req (id, ext_job_id, int_job_id, status) OVERRIDING SYSTEM VALUE
  SELECT id, gen_random_uuid(), uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), 'processing' FROM b),
p AS (INSERT INTO request_payload (kind, request_id, body) SELECT 2, id, body FROM b),
c AS (
  INSERT INTO request_client (client_id, kind, request_id, ext_job_id) SELECT %(account)s, 2, id, gen_random_uuid() FROM b)
SELECT id FROM b ORDER BY ord
"""


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Lease:
    """As workers.leases.HeldLease; `lost` turns true only when a renewal said so."""

    world: World
    resource: str
    instance: str
    epoch: int
    lost: bool = False

    def release(self) -> None:
        self.lost = True
        table.release_lease(self.world.conn, self.resource, self.instance, self.epoch)


@dataclass(eq=False)
class Worker:
    """One process: its session, its leases, its turn, and where it stands."""

    world: World
    instance: str
    conn: psycopg.Connection[Any]
    turn: SettleTurn
    held: dict[str, Lease] = field(default_factory=dict)
    paused_until: int = 0
    seen_at: int = 0
    run: Any = None

    def try_hold(self, resource: str) -> Lease | None:
        return self.world.try_hold(self, resource)


@dataclass
class World:
    """One trial. `conn` is the observer's connection, which no fault meets."""

    conn: psycopg.Connection[Any]
    seed: int
    rows: int
    signers: int = 2
    rates: Rates = field(default_factory=Rates)
    idle: list[psycopg.Connection[Any]] = field(default_factory=list)  # sessions of former processes, with their plans
    on_tick: Callable[[World], None] | None = None
    happened: Counter[str] = field(default_factory=Counter)
    ticks: int = 0
    calm: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.chain = Chain(rng=self.rng, rates=self.rates, happened=self.happened, record=self._arrived)
        self.keys = [bytes([1]) + self.rng.randbytes(31) for _ in range(self.signers)]
        self.workers: list[Worker] = []
        self.bytes_before_wire: list[str] = []
        self.nonce_of: dict[bytes, tuple[bytes, int]] = {}
        self.at_nonce: dict[tuple[bytes, int], bytes] = {}
        self.problems: list[str] = []
        self.current: Worker | None = None
        self.seconds = 0.0
        self.stale_writes = self.last_attempt = 0
        self.leases: dict[str, tuple[str, int]] = {}  # who holds what, in which epoch: as the table says

    def clock(self) -> float:
        """Seconds as the workers see them: a tick is a quarter of one, in the calm half a one."""
        return 1000.0 + self.seconds

    def add_rows(self, account: int) -> None:
        """Requests that wait to be sent, the calldata of each its own, and signers that may have a few under way."""
        self.conn.cursor().executemany(
            "INSERT INTO signer (chain_id, address, max_inflight) VALUES (%s, %s, %s)",
            [(CHAIN_ID, address, WINDOW) for address in self.addresses()],
        )
        bodies = [body(Kind.PUBLIC_DECRYPT) for _ in range(self.rows)]
        ids = self.conn.execute(_ROWS, {"bodies": [json.dumps(one) for one in bodies], "account": account}).fetchall()
        self.subjects = [Subject(Kind.PUBLIC_DECRYPT, row[0]) for row in ids]
        self.data = {
            encode_request(subject.kind, None, one)[1]: subject
            for subject, one in zip(self.subjects, bodies, strict=True)
        }
        enqueue_jobs(self.conn, SEND, [(subject, account) for subject in self.subjects])

    def addresses(self) -> list[bytes]:
        """The signers of this trial."""
        return [LocalSigner(key, CHAIN_ID).address for key in self.keys]

    def start(self) -> None:
        """One more process."""
        number = f"model-{self.seed}-{len(self.workers)}-{self.ticks}"
        conn = self.idle.pop() if self.idle else connect("worker")
        turn = SettleTurn()
        turn._pool = SignerPool(CHAIN_ID, self.keys)
        worker = Worker(self, number, conn, turn, seen_at=self.ticks)
        gateway = GatewayClient(self._endpoints(), _GATEWAY)
        context = SimpleNamespace(
            conn=conn, instance=number, leases=worker, stopping=lambda: False,
            clients=SimpleNamespace(gateway=gateway, endpoints=gateway.endpoints, hosts={}, protocol=None),
        )  # fmt: skip
        worker.run = greenlet.greenlet(lambda: _work(worker, context))
        self.workers.append(worker)

    def _endpoints(self) -> Endpoints:
        endpoints = Endpoints(["http://one.invalid", "http://two.invalid"], clock=self.clock)
        for endpoint in endpoints.all:
            endpoint._connection = Wire(self.chain, endpoint.name)  # type: ignore[assignment]
        return endpoints

    def step(self) -> None:
        """One process goes on to its next point; time passes."""
        self.ticks += 1
        self.seconds += 0.5 if self.calm else 0.25
        while len(self.workers) < (1 if self.calm else WORKERS):
            self.start()
        awake = [one for one in self.workers if one.paused_until <= self.ticks]
        if awake:
            worker = self.current = self.rng.choice(awake)
            self._renew(worker)
            worker.run.switch()
            self.current = None
            if worker.run.dead:
                self._bury(worker)
        if self.ticks % 8 == 0:
            self.chain.tick()
        if self.ticks % 16 == 0:
            self._age()
        if self.on_tick is not None and self.ticks % 2 == 0 and not self.calm:
            self.on_tick(self)

    def _renew(self, worker: Worker) -> None:
        """As the keeper does: nothing while the process slept for long, until it finds out."""
        slept = self.ticks - worker.seen_at
        worker.seen_at = self.ticks
        if slept <= LEASE_TICKS:
            return
        self.happened["woken late"] += 1
        for lease in list(worker.held.values()):
            kept = table.renew_leases(self.conn, worker.instance, [table.LeaseRef(lease.resource, lease.epoch)], 3600)
            # The process learns of it some steps later: until then only the fence knows.
            if not kept and self.rng.random() < 0.3:
                lease.lost = True
                del worker.held[lease.resource]

    def try_hold(self, worker: Worker, resource: str) -> Lease | None:
        found = worker.held.get(resource)
        if found is not None and not found.lost:
            return found
        if resource not in self.leases:
            table.open_lease(self.conn, resource)
        instance, was = self.leases.get(resource, ("", 0))
        holder = next((one for one in self.workers if one.instance == instance), None)
        if holder is not None and holder is not worker and self.ticks - holder.seen_at <= LEASE_TICKS:
            return None
        epoch = table.claim_lease(self.conn, resource, worker.instance, was, 3600, gone=True, how="model")
        assert epoch is not None
        self.leases[resource] = (worker.instance, epoch)
        worker.held[resource] = Lease(self, resource, worker.instance, epoch)
        return worker.held[resource]

    def point(self, name: str) -> None:
        """Called at every crash point of the worker that runs."""
        worker = self.current
        if worker is None or greenlet.getcurrent() is not worker.run:
            return
        if name == "after_prepare_send_commit":
            self._note_stale(worker)
        chance = 1.0 if self.calm else self.rng.random()
        if chance < KILL:
            self.happened["kills"] += 1
            raise Killed
        inside = worker.conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
        if chance < KILL + PAUSE:
            self.happened["pauses"] += 1
            worker.paused_until = self.ticks + self.rng.randint(20, 120)
            if inside:
                # The server ends a transaction that idles for longer than its limit; the process learns of it when it goes on.
                self.conn.execute("SELECT pg_terminate_backend(%s, 5000)", (worker.conn.info.backend_pid,))
        elif inside:
            return  # its locks would stop the others, who wait for them in the same thread
        worker.run.parent.switch()

    def _end(self, worker: Worker) -> None:
        if worker.run:  # it has begun and has not come to its end
            worker.run.throw(Killed)

    def _bury(self, worker: Worker) -> None:
        self.workers.remove(worker)
        try:
            worker.conn.rollback()
        except psycopg.OperationalError:
            worker.conn.close()
        else:
            self.idle.append(worker.conn)

    def _note_stale(self, worker: Worker) -> None:
        """After TX1: whether the one that took nonces is still the holder of the lease under which it did."""
        row = self.conn.execute(
            "SELECT a.id, a.epoch < l.epoch FROM tx_attempt a JOIN signer g ON g.id = a.signer_id"
            " JOIN exec_lease l ON l.resource = 'signer:' || g.chain_id || ':0x' || encode(g.address, 'hex')"
            " WHERE g.address = ANY(%s) ORDER BY a.id DESC LIMIT 1",
            (self.addresses(),),
        ).fetchone()
        if row is not None and row[0] > self.last_attempt:
            self.last_attempt = row[0]
            self.stale_writes += bool(row[1])

    def _age(self) -> None:
        """Let the database's own clocks run: delays, leases of jobs whose holder is gone, pauses between broadcasts."""
        alive = [one.instance for one in self.workers if self.ticks - one.seen_at <= JOB_TICKS]
        self.conn.execute(
            "UPDATE queue_job SET visible_at = clock_timestamp() WHERE visible_at > clock_timestamp()"
            " AND (leased_by IS NULL OR NOT leased_by = ANY(%s))",
            (alive,),
        )
        self.conn.execute(
            "UPDATE tx_attempt SET last_sent_at = last_sent_at - interval '16 s', first_sent_at = first_sent_at - interval '16 s',"
            " prepared_at = prepared_at - interval '16 s' WHERE state IN ('prepared', 'unknown', 'accepted')"
        )

    def _arrived(self, tx: Tx) -> None:
        """R1 to R3 at the moment bytes reach a node."""
        if self.conn.execute("SELECT 1 FROM tx_attempt WHERE tx_hash = %s", (tx.hash,)).fetchone() is None:
            self.problems.append(f"R2: bytes of nonce {tx.nonce} on the wire without a stored attempt")
        place = (tx.sender, tx.nonce)
        if tx.data and self.at_nonce.setdefault(place, tx.data) != tx.data:
            self.problems.append(f"R3: nonce {tx.nonce} was given to two requests")
        if tx.data and self.nonce_of.setdefault(tx.data, place) != place:
            self.problems.append(f"R1: a request was sent at nonces {self.nonce_of[tx.data][1]} and {tx.nonce}")

    def settle(self) -> int:
        """Without further faults, until everything is executed and decided; how many rounds it took."""
        self.calm = self.chain.calm = True
        for worker in self.workers[1:]:
            self._end(worker)
            self._bury(worker)
        self.workers[0].paused_until = 0
        for number in range(CALM_ROUNDS):
            for _ in range(8):
                self.step()
            if not self.open_work():
                return number
        return CALM_ROUNDS

    def open_work(self) -> int:
        """Rows not executed, plus slots without an end."""
        ids = [subject.id for subject in self.subjects]
        row = self.conn.execute(
            "SELECT count(*) FROM public_decrypt_req r LEFT JOIN nonce_slot n ON n.kind = 2 AND n.subject_id = r.id AND n.state <> 'dead'"
            " WHERE r.id = ANY(%s) AND (n.state IS NULL OR n.state NOT IN ('mined', 'final'))",
            (ids,),
        ).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        """End every process; their sessions are left to the next trial."""
        for worker in list(self.workers):
            self._end(worker)
            self._bury(worker)


_GATEWAY = GatewayConfig(
    chain_id=CHAIN_ID,
    rpc_urls=(),
    decryption=b"\xd0" * 20,
    input_verification=b"\xe0" * 20,
    signer_keys=(),
    fee_token=None,
    start_block=0,
)


@contextmanager
def connections_of() -> Iterator[list[psycopg.Connection[Any]]]:
    """Sessions that trials hand on to each other, closed at the end: a new one has everything to plan anew."""
    idle: list[psycopg.Connection[Any]] = []
    try:
        yield idle
    finally:
        for conn in idle:
            conn.close()


def _work(worker: Worker, context: Any) -> None:
    """The turn again and again; a session that broke is the end of the process, as is a kill."""
    try:
        while True:
            try:
                worker.turn.run(context)
            except psycopg.OperationalError:
                return
            worker.run.parent.switch()
    except Killed:
        return


@contextmanager
def stepped(world: World) -> Iterator[None]:
    """Points and clocks of the product lead to this world."""
    changed: list[tuple[Any, str, Any]] = []
    for name, module in sys.modules.copy().items():
        if name.startswith(("workers", "requests_app")):
            for attribute, value in (("crash_point", world.point), ("monotonic", world.clock)):
                if hasattr(module, attribute):
                    changed.append((module, attribute, getattr(module, attribute)))
                    setattr(module, attribute, value)
    lane = signers.Lane
    changed.append((signers, "Lane", lane))
    signers.Lane = lambda held, signer: lane(held, signer, clock=world.clock)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        for module, attribute, value in reversed(changed):
            setattr(module, attribute, value)
