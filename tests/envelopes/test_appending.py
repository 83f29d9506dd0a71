"""The insert inside a caller's transaction: a savepoint a batch, a second connection for DDL, conflicts that stop the originator."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from requests_app.errors import RelayerError, SourceHalted
from requests_app.expiry import LATEST, BadExpiry, expiry_of
from requests_app.store import appending, envelopes, publish
from requests_app.store.appending import append
from requests_app.store.conflicts import Conflict
from requests_app.store.envelopes import record_range
from requests_app.store.signing import Fence
from tests.envelopes import scene
from tests.envelopes.scene import CHAIN, PRICE, WIDTH, Connection, item

ROOT = Path(__file__).parents[2]


def test_the_callers_work_survives_a_missing_band(log: Connection) -> None:
    """5.4.2: only the insert is undone; the caller's rows before and after stay in one transaction."""
    with log.transaction():
        log.execute("INSERT INTO originator_congestion VALUES (77, 1, 1)")
        assert append(log, CHAIN, [item(1), item(3 * WIDTH)], price=PRICE) == (2, 0, 0)
        log.execute("INSERT INTO originator_congestion VALUES (77, 2, 1)")
    assert scene.stored(log) == [1, 3 * WIDTH]
    assert log.execute("SELECT count(*) FROM originator_congestion WHERE source_id = 77").fetchone() == (2,)


def test_bands_stay_when_the_caller_rolls_back(log: Connection) -> None:
    with log.transaction(force_rollback=True):
        append(log, CHAIN, [item(1, scene.account(log))], price=PRICE)
    assert (scene.stored(log), scene.usage(log)) == ([], [])
    assert log.execute("SELECT state FROM envelope_band").fetchall() == [("open",)]


def test_one_savepoint_a_batch(log: Connection) -> None:
    """Measured cost (6.4): two round trips a batch, not a row."""
    before = log.execute("SELECT 1").fetchone()
    with log.transaction():
        append(log, CHAIN, [item(1)], price=PRICE)
        spy: list[str] = []
        real = psycopg.Connection.transaction
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                psycopg.Connection,
                "transaction",
                lambda self, *a, **k: (spy.append("savepoint"), real(self, *a, **k))[1],
            )
            append(log, CHAIN, [item(at) for at in range(2, 500)], price=PRICE)
    assert (before, spy) == ((1,), ["savepoint"])


def test_outside_of_a_transaction_it_refuses(log: Connection) -> None:
    with pytest.raises(RelayerError, match="caller's transaction"):
        append(log, CHAIN, [item(1)], price=PRICE)


def test_the_standalone_way_refuses_nothing_of_a_batch(log: Connection) -> None:
    """An empty batch writes nothing."""
    with log.transaction():
        assert append(log, CHAIN, [], price=PRICE) == (0, 0, 0)


def test_an_unknown_originator_is_permanent(log: Connection) -> None:
    """5.4.5: its row is missing; the caller's transaction can go on."""
    with log.transaction():
        with pytest.raises(RelayerError, match="does not exist"):
            append(log, 500, [item(1)], price=PRICE)
        assert log.execute("SELECT 1").fetchone() == (1,)


def test_a_differing_duplicate_stops_the_originator(log: Connection) -> None:
    """S-15, L-5, I-6: recorded on its own connection, the originator halted, nothing else changed."""
    with log.transaction():
        append(log, CHAIN, [item(at, payload=b"a") for at in range(5)], price=PRICE)
    with pytest.raises(Conflict), log.transaction():
        append(log, CHAIN, [item(3, payload=b"b"), item(4, payload=b"c"), item(9)], price=PRICE)
    assert scene.stored(log) == [0, 1, 2, 3, 4]
    assert log.execute("SELECT position FROM envelope_conflict ORDER BY 1").fetchall() == [(3,), (4,)]
    assert scene.congestion(log) == 5
    with pytest.raises(SourceHalted):
        record_range(log, CHAIN, 1, 1, [], Fence(f"listener:{CHAIN}", "test", 1), None)


def test_a_position_with_two_contents_in_one_batch(log: Connection) -> None:
    """S-15: also before anything is stored."""
    with pytest.raises(Conflict), log.transaction():
        append(log, CHAIN, [item(1, payload=b"a"), item(1, payload=b"b")], price=PRICE)
    assert scene.stored(log) == []


@pytest.mark.parametrize(("given", "year"), [(None, None), (1, 1970), (2**31, 2038), (LATEST, 9999)])
def test_expiry_conversions(given: int | None, year: int | None) -> None:
    """R-18, R-22: one conversion; None stays None."""
    found = expiry_of(given)
    assert (found.year if found else None) == year


@pytest.mark.parametrize("given", [0, -1, LATEST + 1, 2**63 - 1, 2**63, 2**64 - 1, True, 1.5])
def test_expiry_refusals(given: Any) -> None:
    """R-18, R-23: 0 is never "1970", nothing wraps."""
    with pytest.raises(BadExpiry):
        expiry_of(given)


def test_absent_expiry_is_null_and_zero_is_refused(log: Connection) -> None:
    """R-23: NULL when absent, and the database refuses the epoch."""
    with log.transaction():
        append(log, CHAIN, [item(1), item(2, expires_at=datetime(2100, 1, 1, tzinfo=UTC))], price=PRICE)
    assert [row[0] for row in log.execute("SELECT expires_at IS NULL FROM envelope_meta ORDER BY position")] == [
        True,
        False,
    ]
    with pytest.raises(psycopg.errors.CheckViolation), log.transaction():
        append(log, CHAIN, [item(3, expires_at=datetime(1970, 1, 1, tzinfo=UTC))], price=PRICE)


def test_one_definition_of_the_conversion() -> None:
    """R-22: no second implementation of an expiry anywhere."""
    found = [
        path
        for folder in ("requests_app", "workers")
        for path in (ROOT / folder).rglob("*.py")
        if "expir" in path.read_text() and "fromtimestamp" in path.read_text()
    ]
    assert {path.name for path in found} <= {"expiry.py"}


@pytest.mark.parametrize("writer", ["append", "orm", "copy"])
def test_writers_agree(transactional_db: None, log: Connection, writer: str) -> None:
    """L-11: psycopg arrays, Django's ORM and COPY leave the same rows, and the ORM reads them."""
    from requests_app.models import EnvelopeMeta

    envelopes.ensure_band(log, CHAIN, 1)
    items = [item(at, ref=b"r" * 32, payload=bytes([at])) for at in range(3)]
    if writer == "append":
        with log.transaction():
            append(log, CHAIN, items, price=PRICE)
    elif writer == "orm":
        now = datetime.now(UTC)
        EnvelopeMeta.objects.bulk_create([
            EnvelopeMeta(source_id=CHAIN, position=one.position, kind=one.kind, ref=one.ref, contract=b"", block_hash=b"",
                         tx_hash=b"", digest=one.digest, recorded_at=now) for one in items
        ])  # fmt: skip
    else:
        with log.cursor().copy(
            "COPY envelope_meta (source_id, position, kind, ref, contract, block_hash, tx_hash, digest) FROM STDIN"
        ) as copy:
            for one in items:
                copy.write_row((CHAIN, one.position, one.kind, one.ref, b"", b"", b"", one.digest))
    rows = log.execute("SELECT position, kind, ref, digest FROM envelope_meta ORDER BY position").fetchall()
    assert rows == [(one.position, one.kind, one.ref, one.digest) for one in items]
    read = EnvelopeMeta.objects.filter(source_id=CHAIN, position__lt=2**20).values_list("position", "digest")
    assert [(at, bytes(digest)) for at, digest in read] == [(one.position, one.digest) for one in items]


def test_published_kinds_and_chain_kinds_differ() -> None:
    from workers.chain.events import EventKind

    assert publish.PUBLISHED not in set(EventKind)
    assert appending.Item.__dataclass_params__.frozen  # type: ignore[attr-defined]
