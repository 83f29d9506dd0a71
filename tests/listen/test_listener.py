"""The listener against a node that errs in every way the design names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from requests_app.config import config
from requests_app.errors import ForeignChain, StaleEpoch
from requests_app.states import Kind
from requests_app.store.session import connect
from tests.listen import world
from tests.listen.stub_chain import CHAIN_ID, StubChain, running
from tests.listen.world import FENCE, SOURCE, answered, applier, requested, sent, share, status
from tests.waiting import wait_until
from workers import forks
from workers.blocks import Blocks, Unreadable
from workers.chain.clients import Clients
from workers.leases import LeaseKeeper
from workers.listener import Listener, ListenerTurn

Connection = psycopg.Connection[Any]
REF = b"\x02" + b"\x07" * 31


@pytest.fixture
def chain() -> StubChain:
    return StubChain()


@pytest.fixture
def clients(chain: StubChain) -> Iterator[Clients]:
    with running(chain) as (found, _):
        yield found


@pytest.fixture
def follow(log: Connection, clients: Clients) -> Listener:
    """A listener at the start of the chain, its lease held."""
    made = Listener(SOURCE, Blocks(clients.gateway), applier(), FENCE)
    made.open(log, CHAIN_ID, 1)
    return made


def drain(follow: Listener, conn: Connection) -> None:
    for _ in range(1000):
        if not follow.poll(conn):
            return
    raise AssertionError("the listener does not come to an end")


def sealed(conn: Connection) -> int:
    return int(conn.execute("SELECT block FROM chain_cursor").fetchone()[0])


def stored(conn: Connection) -> list[int]:
    return [row[0] for row in conn.execute("SELECT position FROM envelope_meta ORDER BY 1")]


def test_events_are_stored_and_applied(log: Connection, chain: StubChain, follow: Listener) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    chain.put(requested(one, (3, 0)), answered(one, (5, 0)), head=9)
    drain(follow, log)
    assert (status(log, one), sealed(log)) == ("completed", 9)


def test_a_node_that_refuses_ranges_is_asked_for_less(log: Connection, chain: StubChain, follow: Listener) -> None:
    events = [share(REF, n, (7 * n + 1, 0)) for n in range(30)]
    chain.put(*events, head=230)
    chain.range_limit = 10
    drain(follow, log)
    assert stored(log) == [one.position for one in events]


def test_a_node_that_refuses_a_single_block_seals_nothing(log: Connection, chain: StubChain, follow: Listener) -> None:
    chain.put(share(REF, 0, (1, 0)))
    chain.range_limit = 0
    with pytest.raises(Exception, match="logs of 1"):
        follow.poll(log)
    assert sealed(log) == 0


def test_a_node_behind_its_own_head_seals_nothing(log: Connection, chain: StubChain, follow: Listener) -> None:
    """The head came from another node: eth_getLogs answers [] for blocks this one has not seen, without an error."""
    chain.put(share(REF, 0, (2, 0)), share(REF, 1, (6, 0)), head=6)
    chain.known_head = 3
    assert follow.poll(log) == 0
    assert sealed(log) == 0
    chain.known_head = None
    drain(follow, log)
    assert (len(stored(log)), sealed(log)) == (2, 6)


@pytest.mark.parametrize("fault", [None, {}, [{"junk": 1}], [{"removed": True}]])
def test_unreadable_answers_seal_nothing(log: Connection, chain: StubChain, follow: Listener, fault: Any) -> None:
    chain.put(share(REF, 0, (1, 0)))
    chain.faults["eth_getLogs"] = fault
    with pytest.raises(Unreadable):
        follow.poll(log)
    assert sealed(log) == 0
    del chain.faults["eth_getLogs"]
    drain(follow, log)
    assert len(stored(log)) == 1


def test_empty_blocks_are_not_written_one_by_one(log: Connection, chain: StubChain, follow: Listener) -> None:
    chain.put(share(REF, 0, (1, 0)))
    drain(follow, log)
    before = log.execute("SELECT updated_at FROM chain_cursor").fetchone()
    for head in range(2, 30):
        chain.head = head
        drain(follow, log)
    assert log.execute("SELECT updated_at FROM chain_cursor").fetchone() == before
    chain.put(share(REF, 1, (30, 0)))
    drain(follow, log)
    assert (sealed(log), len(stored(log))) == (30, 2)


def test_blocks_looked_at_but_not_sealed_may_change(log: Connection, chain: StubChain, follow: Listener) -> None:
    chain.put(share(REF, 0, (1, 0)))
    drain(follow, log)
    chain.head = 3
    drain(follow, log)
    chain.forks = {2: 1, 3: 1, 4: 1}
    late = world.event(
        "UserDecryptionResponse(uint256,uint256,bytes,bytes,bytes)", (2, 0), REF, b"t" * 32, (1, b"", b"", b""), fork=1
    )
    chain.put(late, head=4)
    drain(follow, log)
    drain(follow, log)
    assert late.position in stored(log)


def test_a_sealed_block_that_changes_is_taken_back(log: Connection, chain: StubChain, follow: Listener) -> None:
    chain.put(share(REF, 0, (2, 0)))
    drain(follow, log)
    chain.forks = {2: 1, 3: 1}
    chain.events.clear()
    chain.put(head=3)
    for _ in range(forks.MISMATCHES - 1):
        assert follow.poll(log) == 0
        assert (sealed(log), len(stored(log))) == (2, 1)
    follow.poll(log)
    drain(follow, log)
    assert stored(log) == []
    assert log.execute("SELECT position >> 20 FROM envelope_orphan").fetchall() == [(2,)]
    assert log.execute("SELECT fork_block, sealed, envelopes FROM chain_reorg").fetchall() == [(2, 2, 1)]


def test_a_sealed_block_that_changes_is_noticed_before_the_next_one(
    log: Connection, chain: StubChain, follow: Listener
) -> None:
    """A chain may stand still after a reorganisation of equal height: it used to be noticed with the next block only."""
    chain.put(share(REF, 0, (2, 0)))
    drain(follow, log)
    chain.forks = {2: 1}
    chain.events.clear()
    for _ in range(forks.MISMATCHES - 1):
        follow.poll(log)
        assert (sealed(log), len(stored(log))) == (2, 1)
    follow.poll(log)
    drain(follow, log)
    assert stored(log) == []
    assert log.execute("SELECT fork_block, sealed, envelopes FROM chain_reorg").fetchall() == [(2, 2, 1)]


def test_looked_at_but_not_sealed_may_change_at_the_same_height(
    log: Connection, chain: StubChain, follow: Listener
) -> None:
    chain.put(share(REF, 0, (1, 0)))
    drain(follow, log)
    chain.head = 3
    drain(follow, log)
    chain.forks = {3: 1}
    late = world.event(
        "UserDecryptionResponse(uint256,uint256,bytes,bytes,bytes)", (3, 0), REF, b"t" * 32, (1, b"", b"", b""), fork=1
    )
    chain.put(late, head=3)
    follow.poll(log)
    drain(follow, log)
    assert late.position in stored(log)


def test_one_wrong_hash_is_not_believed(log: Connection, chain: StubChain, follow: Listener) -> None:
    chain.put(share(REF, 0, (2, 0)))
    drain(follow, log)
    chain.forks = {2: 1}
    chain.put(head=3)
    follow.poll(log)
    chain.forks = {}
    chain.put(share(REF, 1, (3, 0)))
    drain(follow, log)
    assert sealed(log) == 3


def test_another_genesis_is_refused_before_anything_is_written(
    log: Connection, chain: StubChain, clients: Clients
) -> None:
    log.execute("INSERT INTO chain_identity (chain_id, genesis_hash) VALUES (%s, %s)", (CHAIN_ID, b"\x01" * 32))
    with pytest.raises(ForeignChain, match="reset database and chain together"):
        Listener(SOURCE, Blocks(clients.gateway), applier(), FENCE).open(log, CHAIN_ID, 1)


def test_what_was_recorded_but_not_applied_is_applied_later(
    log: Connection, chain: StubChain, clients: Clients
) -> None:
    """A crash between the two commits: the next holder applies the log before it reads on."""
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    world.record(log, 1, 2, [requested(one, (1, 0)), answered(one, (2, 0))])
    chain.head = 2
    Listener(SOURCE, Blocks(clients.gateway), applier(), FENCE).open(log, CHAIN_ID, 1)
    assert status(log, one) == "completed"


def test_an_applier_error_is_caught_up(log: Connection, chain: StubChain, follow: Listener) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    chain.put(requested(one, (1, 0)), answered(one, (2, 0)))
    with connect("worker") as other, other.transaction():
        other.execute("SELECT 1 FROM consumer_cursor FOR UPDATE")
        log.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            follow.poll(log)
    assert (sealed(log), status(log, one)) == (2, "tx_in_flight")
    follow.poll(log)
    assert status(log, one) == "completed"


def test_a_listener_that_was_taken_over_writes_nothing(log: Connection, chain: StubChain, follow: Listener) -> None:
    chain.put(share(REF, 0, (1, 0)))
    log.execute("UPDATE exec_lease SET epoch = 2, instance = 'other'")
    with pytest.raises(StaleEpoch):
        follow.poll(log)
    assert (sealed(log), stored(log)) == (0, [])


class Context:
    """What a turn sees of a process."""

    def __init__(self, conn: Connection, clients: Clients, instance: str, seconds: float = 10) -> None:
        self.conn, self.clients, self.instance = conn, clients, instance
        self.leases = LeaseKeeper(instance, seconds)

    def stopping(self) -> bool:
        return False


@pytest.fixture
def configured(settings: Any, chain: StubChain, clients: Clients) -> Iterator[None]:
    settings.GATEWAY_RPC_URLS = list(clients.gateway.config.rpc_urls)
    settings.GATEWAY_CHAIN_ID = CHAIN_ID
    settings.DECRYPTION_ADDRESS, settings.INPUT_VERIFICATION_ADDRESS = (
        "0x" + world.DECRYPTION.hex(),
        "0x" + world.INPUTS.hex(),
    )
    settings.GATEWAY_SIGNER_KEYS, settings.HOST_CHAINS, settings.FEE_TOKEN_ADDRESS = [], [], ""
    settings.GATEWAY_START_BLOCK = 1
    config.cache_clear()
    yield
    config.cache_clear()


def test_two_listeners_one_works_the_other_takes_over(
    log: Connection, chain: StubChain, clients: Clients, configured: None
) -> None:
    log.execute("DELETE FROM exec_lease")
    with connect("worker") as second_conn:
        first, second = Context(log, clients, "first"), Context(second_conn, clients, "second")
        left, right = ListenerTurn(), ListenerTurn()
        try:
            chain.put(share(REF, 0, (1, 0)))
            assert left.run(first) == 1  # type: ignore[arg-type]
            assert right.run(second) == 0  # type: ignore[arg-type]
            left.close()
            chain.put(share(REF, 1, (2, 0)))
            wait_until(lambda: right.run(second), 60, "the second listener to take over")  # type: ignore[arg-type]
            assert log.execute("SELECT instance, epoch FROM exec_lease").fetchone() == ("second", 2)
            assert len(stored(log)) == 2
        finally:
            right.close()
            first.leases.close()
            second.leases.close()


def test_the_command_ends_with_78_on_a_foreign_chain(
    log: Connection, configured: None, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda number, handler: None)  # pytest keeps its own
    log.execute("DELETE FROM exec_lease")
    log.execute("INSERT INTO chain_identity (chain_id, genesis_hash) VALUES (%s, %s)", (CHAIN_ID, b"\x01" * 32))
    with pytest.raises(SystemExit) as ended:
        call_command("relayer_listener")
    assert ended.value.code == 78
    assert "this database belongs to" in capsys.readouterr().err


def test_the_genesis_is_what_block_1_is_built_on(chain: StubChain, clients: Clients) -> None:
    """A restarted anvil answers eth_getBlockByNumber(0) with a block of its own making; the chain is still the same."""
    assert Blocks(clients.gateway).genesis() == chain.genesis
    chain.head = 5
    known = chain.eth_getBlockByNumber("0x1", False)
    chain.genesis = b"\x55" * 32
    chain.eth_getBlockByNumber = (  # type: ignore[method-assign]
        lambda tag, full: known if tag == "0x1" else StubChain.eth_getBlockByNumber(chain, tag, full)
    )
    assert Blocks(clients.gateway).genesis() == b"\x99" * 32
