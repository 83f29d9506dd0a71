"""relayer_ledger: what it proves, and that every kind of tampering is found at its number."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from requests_app.store import ledger
from tests.payments.terms import CHAIN, MERCHANT, USDC
from tests.payments.test_ledger import add, hold, post, void

Conn = psycopg.Connection[Any]


@pytest.fixture
def journal(conn: Conn) -> Conn:
    """Five entries: three holds, a post, a void."""
    add(conn, hold(), hold("pi_0002"), hold("pi_0003"), post(), void("pi_0002"))
    return conn


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("relayer_ledger", *words, stdout=out)
    return out.getvalue()


def verdict(*words: str) -> dict[str, Any]:
    """The JSON of verify; exit code and verdict agree."""
    out = io.StringIO()
    try:
        call_command("relayer_ledger", "verify", "--json", *words, stdout=out)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    found: dict[str, Any] = json.loads(out.getvalue())
    assert code == (0 if found["ok"] else 1)
    return found


def tamper(conn: Conn, *statements: str) -> None:
    conn.execute("BEGIN; SET LOCAL session_replication_role = replica; " + "; ".join(statements) + "; COMMIT")


def test_a_whole_journal_is_verified(journal: Conn) -> None:
    head = ledger.head(journal)
    assert verdict() == {"ok": True, "entries": 5, "head": head.hash.hex(), "broken": None}
    assert run("head").strip() == f"5:{head.hash.hex()}"
    assert "every one follows" in run("verify", "--head", run("head").strip())
    assert json.loads(run("head", "--json")) == {"seq": 5, "hash": head.hash.hex()}


SWAP = "UPDATE ledger_entry SET seq = CASE seq WHEN 2 THEN -3 ELSE -2 END WHERE seq IN (2, 3)"
TAMPERINGS: dict[str, tuple[tuple[str, ...], int]] = {
    "amount": (("UPDATE ledger_leg SET amount = amount * 2 WHERE entry_seq = 2",), 2),
    "account": (("UPDATE ledger_leg SET account = account || 'x' WHERE entry_seq = 4 AND ord = 2",), 4),
    "time": (("UPDATE ledger_entry SET at = at + interval '1 us' WHERE seq = 3",), 3),
    "memo": (("UPDATE ledger_entry SET memo = 'paid' WHERE seq = 5",), 5),
    "hash": (("UPDATE ledger_entry SET tx_hash = '\\xcc' WHERE seq = 4",), 4),
    "actor": (("UPDATE ledger_entry SET by_actor = 'operator' WHERE seq = 1",), 1),
    "deleted": (("DELETE FROM ledger_entry WHERE seq = 2", "DELETE FROM ledger_leg WHERE entry_seq = 2"), 2),
    "deleted and closed up": (
        ("DELETE FROM ledger_entry WHERE seq = 2", "UPDATE ledger_entry SET seq = seq - 1 WHERE seq > 2"),
        2,
    ),
    "swapped": ((SWAP, "UPDATE ledger_entry SET seq = -seq WHERE seq < 0"), 2),
    "rehashed": (("UPDATE ledger_entry SET hash = sha256(hash) WHERE seq = 3",), 3),
    "an actor that is none": (("UPDATE ledger_entry SET by_actor = 'nobody' WHERE seq = 2",), 2),
    "a time that is none": (("UPDATE ledger_entry SET at = 'infinity' WHERE seq = 3",), 3),
    "an amount that is none": (("UPDATE ledger_leg SET amount = 'NaN' WHERE entry_seq = 4",), 4),
    "an entry before the first": (
        (
            'INSERT INTO ledger_entry SELECT (jsonb_populate_record(e, \'{"seq": 0, "entry_id": "pi_0009/hold", "ref": "x"}\')).* FROM ledger_entry e WHERE seq = 1',
        ),
        1,
    ),
    "a leg more": (("INSERT INTO ledger_leg VALUES (3, 3, 'fee:x', 1)",), 3),
}


@pytest.mark.parametrize("what", list(TAMPERINGS))
def test_tampering_is_found_at_its_number(journal: Conn, what: str) -> None:
    statements, seq = TAMPERINGS[what]
    tamper(journal, *statements)
    assert verdict()["broken"]["seq"] == seq


def test_a_lost_tail_is_found_by_a_published_head(journal: Conn) -> None:
    head = run("head").strip()
    tamper(journal, "DELETE FROM ledger_entry WHERE seq = 5")
    assert verdict()["ok"]
    assert verdict("--head", head)["broken"]["seq"] == 5
    other = f"3:{'ab' * 32}"
    assert "published" in verdict("--head", other)["broken"]["why"]
    with pytest.raises(CommandError):
        run("verify", "--head", "5")


def test_an_empty_journal_is_whole(conn: Conn) -> None:
    assert verdict()["entries"] == 0
    assert run("balances").strip() == "0 balances"


def test_balances_and_export(journal: Conn, tmp_path: Path) -> None:
    rows = json.loads(run("balances", "--account", f"merchant:{MERCHANT}", "--json"))
    assert rows == [
        {
            "account": f"merchant:{MERCHANT}",
            "chain": CHAIN,
            "token": USDC,
            "pending": "100000000",
            "posted": "100000000",
        }
    ]
    table = list(csv.DictReader(io.StringIO(run("export"))))
    assert [(row["seq"], row["amount"]) for row in table] == [
        *[(str(seq), amount) for seq in (1, 2, 3, 4) for amount in ("-100000000", "100000000")],
        ("5", ""),
    ]
    for number in ("-1", str(2**63)):
        with pytest.raises(CommandError, match="from 0 to"):
            run("export", "--after", number)
    with pytest.raises(CommandError, match="cannot be written"):
        run("export", "--output", str(tmp_path / "nowhere" / "journal.csv"))
    target = tmp_path / "journal.jsonl"
    run("export", "--format", "json", "--after", "3", "--output", str(target))
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(one["id"], one["holds"], len(one["legs"])) for one in lines] == [
        ("pi_0001/post", "pi_0001/hold", 2),
        ("pi_0002/void", "pi_0002/hold", 0),
    ]
    assert lines[0]["tx_hash"] == "0xbb"
    assert lines[1]["prev_hash"] == lines[0]["hash"]
