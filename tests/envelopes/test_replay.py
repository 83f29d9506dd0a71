"""Replay: whatever the chain drove is driven again to the same end; parked envelopes are redriven by command."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from requests_app.states import REQUEST_KINDS, Kind
from requests_app.store import consumers
from tests.envelopes import scene
from tests.envelopes.scene import Connection
from tests.listen import world
from workers import replay as module
from workers.management.commands import relayer_envelopes, relayer_replay
from workers.replay import redrive, replay

SOURCE = world.SOURCE


@pytest.fixture
def played(log: Connection) -> dict[Kind, list[world.Ours]]:
    """Requests of every kind, completed, rejected, and unanswered, by events of blocks 1 to 60; applied once."""
    scene.chain(log, SOURCE, band_blocks=20)
    ours = {kind: world.sent(log, kind, 6) for kind in REQUEST_KINDS}
    events: list[Any] = []
    for kind, rows in ours.items():
        for n, one in enumerate(rows):
            block = 1 + n * 8 + kind
            early = n == 1  # this one's answers are in the log before its request
            events.append(world.requested(one, (block + (4 if early else 0), 5 * kind)))
            if n == 5:
                continue
            if kind is Kind.USER_DECRYPT:
                events += [world.share(one.ref, s, (block + 1 + s // 5, 20 * kind + s)) for s in range(13)]
                events.append(world.consensus(one.ref, (block + 3, 99)))
            else:
                events.append(
                    world.answered(one, (block + 2, 30 * kind), rejected=kind is Kind.INPUT_PROOF and n % 2 == 0)
                )
    world.record(log, 1, 70, events)
    world.applier().catch_up(log)
    return ours


def outcome(conn: Connection) -> list[Any]:
    """What a replay must bring back: all but times, and reserved columns of the row itself."""
    found = []
    for kind in REQUEST_KINDS:
        extra = {
            Kind.USER_DECRYPT: "resolved_threshold, gw_consensus_tx_hash", Kind.PUBLIC_DECRYPT: "res, gw_response_tx_hash",
            Kind.INPUT_PROOF: "accepted, res, gw_response_tx_hash",
        }[kind]  # fmt: skip
        found += conn.execute(
            f"SELECT {kind.value}, id, status, gw_reference_id, gw_req_tx_hash, receipt_block, {extra} FROM {kind.table} ORDER BY id"
        ).fetchall()
    found += conn.execute(
        "SELECT gw_reference_id, share_index, share, position FROM user_decrypt_share ORDER BY 1, 2"
    ).fetchall()
    return found


def reset(conn: Connection) -> None:
    """A copy in which nothing has come back from the chain yet."""
    columns = {
        Kind.USER_DECRYPT: "resolved_threshold = NULL, gw_consensus_tx_hash = NULL",
        Kind.PUBLIC_DECRYPT: "res = NULL, gw_response_tx_hash = NULL",
        Kind.INPUT_PROOF: "accepted = NULL, res = NULL, gw_response_tx_hash = NULL",
    }
    with conn.transaction():
        conn.execute("SET LOCAL session_replication_role = replica")  # final rows never change, except here
        for kind in REQUEST_KINDS:
            conn.execute(
                f"UPDATE {kind.table} SET status = 'tx_in_flight', gw_reference_id = NULL, receipt_block = NULL, completed_at = NULL, "
                f"fail_label = NULL, fail_detail = NULL, {columns[kind]}"
            )
        conn.execute("DELETE FROM gateway_ref")
        conn.execute("DELETE FROM user_decrypt_share")


@pytest.mark.parametrize("page", [7, 500])
def test_a_reset_copy_comes_to_the_same_end(log: Connection, played: Any, page: int) -> None:
    """Every chain-driven row reset to tx_in_flight, the retained range replayed: the same rows, accepted and rejected alike."""
    before = outcome(log)
    assert {row[2] for row in before if len(row) > 5} == {"completed", "receipt_received"}
    assert {row[6] for row in before if len(row) > 5 and row[0] == Kind.INPUT_PROOF} == {True, False, None}
    cursor = consumers.read_consumer(log, SOURCE)
    reset(log)
    assert outcome(log) != before
    told: list[int] = []
    report = replay(
        log, world.applier(), world.reader(), SOURCE, 1, 1000, page=page, progress=lambda done, at: told.append(done)
    )
    assert outcome(log) == before
    assert (report.skipped, told[-1]) == ({}, report.envelopes)
    assert sum(report.completed.values()) == 15
    assert consumers.read_consumer(log, SOURCE) == cursor


def test_a_replay_twice_changes_nothing(log: Connection, played: Any) -> None:
    before, history = outcome(log), log.execute("SELECT count(*) FROM req_transition").fetchone()
    for _ in range(2):
        report = replay(log, world.applier(), world.reader(), SOURCE, 1, 70)
        assert sum(report.completed.values()) == 0
    assert outcome(log) == before
    assert log.execute("SELECT count(*) FROM req_transition").fetchone() == history


def test_killed_in_the_middle_it_is_started_again(
    log: Connection, played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-2: every page is one transaction: effects of a page are all there or not at all."""
    before = outcome(log)
    reset(log)

    def stop(done: int, position: int) -> None:
        if done >= 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(log, world.applier(), world.reader(), SOURCE, 1, 70, page=10, progress=stop)
    replay(log, world.applier(), world.reader(), SOURCE, 1, 70, page=10)
    assert outcome(log) == before


def test_the_command(log: Connection, played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dry run writes nothing; JSON says what was done; a bad range is refused."""
    monkeypatch.setattr(relayer_replay.Command, "_reader", lambda self: world.reader())
    monkeypatch.setattr(relayer_replay, "connect", lambda *a, **k: _kept(log))
    before = outcome(log)
    reset(log)
    blank = outcome(log)
    dry = _json("relayer_replay", "--dry-run")
    assert (dry["dry_run"], dry["from"], dry["to"], dry["skipped"]) == (True, 1, 70, {})
    assert outcome(log) == blank
    done = _json("relayer_replay", "--from", "1", "--to", "70")
    assert done["envelopes"] == dry["envelopes"]
    assert outcome(log) == before
    with pytest.raises(Exception, match="not a range"):
        _json("relayer_replay", "--from", "9", "--to", "2")


class _Kept:
    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def __enter__(self) -> Connection:
        return self._conn

    def __exit__(self, *error: object) -> None: ...


def _kept(conn: Connection) -> Any:
    return _Kept(conn)


def _json(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command(arguments[0], *arguments[1:], "--json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def test_parked_envelopes_are_redriven(log: Connection, played: Any) -> None:
    """A repaired one is resolved, one that fails again stays parked with its new reason and one more attempt."""
    good = log.execute("SELECT min(position) FROM envelope_meta").fetchone()[0]  # type: ignore[index]
    for position in (good, 999 << 20):
        consumers.park_envelopes(log, SOURCE, {position: RuntimeError("a defect of ours")})
    assert consumers.parked_positions(log, SOURCE) == [good, 999 << 20]
    found = redrive(log, world.applier(), SOURCE)
    assert found[good] is None
    assert "no longer stored" in str(found[999 << 20])
    assert consumers.parked_positions(log, SOURCE) == [999 << 20]
    assert log.execute("SELECT attempts FROM dead_envelope WHERE resolved_at IS NULL").fetchone() == (2,)
    assert redrive(log, world.applier(), SOURCE, [good]) == {}


def test_an_envelope_that_cannot_be_read_is_skipped_alone(log: Connection, played: Any) -> None:
    """R-12: emitted by a contract that it does not belong to: permanent, named, the rest is applied."""
    before = outcome(log)
    bad = log.execute(
        "UPDATE envelope_meta SET contract = '\\x00' WHERE position = (SELECT max(position) FROM envelope_meta) RETURNING position"
    ).fetchone()
    assert bad is not None
    reset(log)
    report = replay(log, world.applier(), world.reader(), SOURCE, 1, 70)
    assert list(report.skipped) == [bad[0]]
    assert "WrongContract" in report.skipped[bad[0]]
    assert len(outcome(log)) >= len(before) - 1


def test_the_commands_on_keys_and_publications(log: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayer_envelopes, "connect", lambda *a, **k: _kept(log))
    payer = scene.account(log)
    staged = scene.stage(log, payer)
    log.execute("UPDATE staged_envelope SET parked_at = clock_timestamp()")

    def act(*arguments: str) -> dict[str, Any]:
        out = StringIO()
        call_command("relayer_envelopes", "--json", *arguments, stdout=out)
        found: dict[str, Any] = json.loads(out.getvalue())
        return found

    assert act("unpark", "--dry-run") == {"would_unpark": [staged]}
    assert act("unpark") == {"unparked": 1}
    assert act("rotate-key", "--dry-run") == {"would_be": 1}
    assert act("rotate-key") == {"version": 1}
    assert act("retire-key", "1", "--dry-run") == {"retired": 1, "done": False}
    assert act("retire-key", "1") == {"retired": 1, "done": True}
    with pytest.raises(Exception, match="retired already"):
        act("retire-key", "1")
    log.execute("INSERT INTO cursor_key (version, secret) VALUES (255, '\\x00')")
    with pytest.raises(CommandError, match="255 were made"):  # the version is one byte of every cursor
        act("rotate-key")
    for words in (["redrive", "--dry-run", "--position", str(2**64)], ["unpark", "--id", str(2**64)]):
        with pytest.raises(CommandError, match="larger than any"):
            act(*words)
    assert act("bands", "--source", "11") == {}
    assert act("redrive", "--dry-run", "--source", "11") == {"would_redrive": []}
    assert module.PAGE <= 1000
