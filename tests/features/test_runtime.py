"""Runtime settings: ranges, history, what a process sees, the command, the desk and `/admin/config`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import InterfaceError as DjangoInterfaceError
from django.db import OperationalError as DjangoOperationalError
from django.test import Client

from requests_app import runtime
from requests_app.api.retry_after import Pace, pace_of
from requests_app.runtime import REGISTRY, SettingRefused
from requests_app.store.session import connect, web_connection
from tests.desk.conftest import as_role  # noqa: F401 - a fixture
from tests.waiting import wait_until

PEOPLE = {"by": "shell:test", "reason": "because"}
READER = """
import sys, django
django.setup()
from requests_app import runtime
from requests_app.store.session import connect
conn = connect("worker")
for line in sys.stdin:
    print(runtime.values(lambda: conn)[line.strip()], flush=True)
"""


def now(name: str) -> Any:
    return runtime.values(web_connection)[name]


def command(*arguments: str, **options: Any) -> Any:
    answer = StringIO()
    call_command("relayer_setting", "--json", *arguments, stdout=answer, **options)
    return json.loads(answer.getvalue())


def test_defaults_are_the_contract_s(db: None) -> None:
    assert pace_of(runtime.defaults()) == Pace()
    assert now("user_decrypt_additional_shares") == 0
    assert now("readiness_interval_seconds") == 3.0


def test_a_change_is_seen_recorded_and_taken_back(db: None) -> None:
    done = runtime.change(web_connection(), "retry_after_max_seconds", 60, **PEOPLE)
    assert (done.before, done.after, done.written) == (300, 60, True)
    assert now("retry_after_max_seconds") == 60
    assert not runtime.change(web_connection(), "retry_after_max_seconds", 60, **PEOPLE).written
    runtime.change(web_connection(), "retry_after_max_seconds", None, by="shell:other", reason="enough")
    assert now("retry_after_max_seconds") == 300
    rows = command("history", "retry_after_max_seconds")
    assert [(r["before"], r["after"], r["changed_by"], r["reason"]) for r in rows] == [
        (60, None, "shell:other", "enough"),
        (None, 60, "shell:test", "because"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("nothing", 1, "Unknown configuration parameter: nothing"),
        ("input_proof_throttler_tps", 0, "input_proof_throttler_tps must be greater than 0"),
        ("input_proof_throttler_tps", 1001, "input_proof_throttler_tps must be less than or equal to 1000"),
        ("input_proof_throttler_tps", 1.5, "Type mismatch: expected u32, got f32"),
        ("input_proof_throttler_tps", -1, "Type mismatch: expected u32, got f32"),
        ("input_proof_throttler_tps", True, "Type mismatch: expected u32, got bool"),
        ("retry_after_safety_margin", 1, "Type mismatch: expected f32, got u32"),
        ("retry_after_safety_margin", 1.1, "Value 1.1 is out of range [0.0, 1.0]"),
        ("retry_after_safety_margin", float("nan"), "Value nan is out of range [0.0, 1.0]"),
        ("retry_after_min_seconds", 301, "retry_after_min_seconds must not be greater than retry_after_max_seconds"),
        ("retry_after_backoff", [[0, 4], [0, 5]], "retry_after_backoff must be"),
        ("retry_after_backoff", [], "retry_after_backoff must be"),
    ],
)
def test_what_is_refused_changes_nothing(db: None, name: str, value: Any, text: str) -> None:
    with pytest.raises(SettingRefused, match=re.escape(text)):
        runtime.change(web_connection(), name, value, **PEOPLE)
    assert command("history") == []


def test_both_ends_of_every_range_are_accepted(db: None) -> None:
    for parameter in REGISTRY.values():
        if parameter.type is not runtime.Type.TABLE:
            kind = int if parameter.type is runtime.Type.U32 else float
            assert parameter.check(kind(parameter.low)) == parameter.low
            assert parameter.check(kind(parameter.high)) == parameter.high


def test_min_and_max_cannot_cross_by_two_changes_at_once(transactional_db: None) -> None:
    """Each is allowed alone; together they would turn the clamp around."""

    def set_one(name: str, value: int) -> bool:
        with connect("worker") as conn:
            try:
                return runtime.change(conn, name, value, **PEOPLE).written
            except SettingRefused:
                return False

    with ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            first = pool.submit(set_one, "retry_after_min_seconds", 200)
            second = pool.submit(set_one, "retry_after_max_seconds", 100)
            assert (first.result(), second.result()).count(True) == 1
            for name in ("retry_after_min_seconds", "retry_after_max_seconds"):
                set_one(name, None)  # type: ignore[arg-type]


def test_history_can_be_neither_edited_nor_deleted(db: None) -> None:
    runtime.change(web_connection(), "api_retry_after_seconds", 9, **PEOPLE)
    for statement in ("UPDATE runtime_change SET reason = 'x'", "DELETE FROM runtime_change"):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation), web_connection().transaction():
            web_connection().execute(statement)


def test_a_stored_value_of_another_release_is_ignored(db: None) -> None:
    web_connection().execute(
        "INSERT INTO runtime_setting (name, value, updated_by) VALUES ('api_retry_after_seconds', '0', 'x'), ('gone', '1', 'x')"
    )
    assert now("api_retry_after_seconds") == 4


@pytest.mark.parametrize("error", [psycopg.OperationalError, DjangoOperationalError, DjangoInterfaceError])
def test_without_database_the_last_values_stay(db: None, error: type[Exception]) -> None:
    runtime.change(web_connection(), "api_retry_after_seconds", 9, **PEOPLE)
    assert now("api_retry_after_seconds") == 9
    runtime._memory._until = 0.0

    def away() -> Any:
        raise error("away")

    assert runtime.values(away)["api_retry_after_seconds"] == 9


def test_who_forgets_meanwhile_does_not_make_a_reader_take_the_defaults(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.change(web_connection(), "api_retry_after_seconds", 9, **PEOPLE)
    memory, clock = runtime._Memory(), runtime.time.monotonic

    def forgetting() -> float:
        memory.forget()
        return clock()

    monkeypatch.setattr(runtime.time, "monotonic", forgetting)
    assert memory.read(web_connection)["api_retry_after_seconds"] == 9


def test_every_process_follows_within_five_seconds(transactional_db: None) -> None:
    from django.db import connection

    url = {"RELAYER_TEST_DATABASE": connection.settings_dict["NAME"]}
    code = "import os; from django.conf import settings; settings.DATABASES['default']['NAME'] = os.environ['RELAYER_TEST_DATABASE']\n"
    environment = {**os.environ, **url, "DJANGO_SETTINGS_MODULE": "relayer_site.settings"}
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", code + READER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]

    def seen() -> list[str]:
        for reader in readers:
            assert reader.stdin is not None
            reader.stdin.write("api_retry_after_seconds\n")
            reader.stdin.flush()
        return [reader.stdout.readline().strip() for reader in readers if reader.stdout is not None]

    try:
        assert seen() == ["4"] * 2
        with connect("worker") as conn:
            runtime.change(conn, "api_retry_after_seconds", 11, **PEOPLE)
        began = time.monotonic()
        wait_until(lambda: seen() == ["11"] * 2, 60)
        assert time.monotonic() - began < 5
    finally:
        for reader in readers:
            reader.communicate()


def test_the_command_lists_sets_and_refuses(db: None) -> None:
    assert {row["name"] for row in command("list")} == set(REGISTRY)
    dry = command("set", "readiness_interval_seconds", "5", "--dry-run")
    assert dry == {"name": "readiness_interval_seconds", "before": 3.0, "after": 5.0, "written": False, "dry_run": True}
    assert now("readiness_interval_seconds") == 3.0
    assert command("set", "readiness_interval_seconds", "5", "--reason", "busy")["written"]
    assert command("set", "retry_after_backoff", "[[0, 2], [30, 9]]")["after"] == [[0, 2], [30, 9]]
    assert now("retry_after_backoff") == [[0, 2], [30, 9]]
    assert command("set", "retry_after_backoff", "default")["after"] == runtime.BACKOFF
    for text in ("soon", "null", "[" * 100_000):
        with pytest.raises(CommandError, match="neither a number"):
            command("set", "retry_after_backoff", text)
    for limit in ("-1", "0", str(10**20)):
        with pytest.raises(CommandError, match="from 1 to"):
            command("history", "--limit", limit)


# --- the desk ----------------------------------------------------------------------------------------------------------------------------

PAGE = "/admin/requests_app/runtimesetting/"


def test_the_desk_shows_all_and_lets_an_operator_change_one(as_role: Any) -> None:  # noqa: F811
    operator: Client = as_role("operator")
    text = operator.get(PAGE).content.decode()
    assert all(name in text for name in REGISTRY)
    one = f"{PAGE}retry_after_max_seconds/change/"
    assert "Change it" in operator.get(one).content.decode()
    assert operator.post(one, {"value": "90", "reason": "", "action": "set"}).status_code == 200
    assert now("retry_after_max_seconds") == 300
    assert operator.post(one, {"value": "90", "reason": "slow chain", "action": "set"}).status_code == 302
    assert now("retry_after_max_seconds") == 90
    page = operator.get(one).content.decode()
    assert "admin:operator-person" in page
    assert "slow chain" in page
    assert "must be less than" in operator.post(one, {"value": "9999", "reason": "x", "action": "set"}).content.decode()
    assert operator.post(one, {"reason": "again", "action": "reset"}).status_code == 302
    assert now("retry_after_max_seconds") == 300


def test_a_viewer_may_look_only(as_role: Any) -> None:  # noqa: F811
    viewer: Client = as_role("viewer")
    one = f"{PAGE}retry_after_max_seconds/change/"
    assert "Change it" not in viewer.get(one).content.decode()
    assert viewer.post(one, {"value": "90", "reason": "x", "action": "set"}).status_code == 403
    assert as_role("").get(PAGE).status_code == 403
    assert viewer.get(f"{PAGE}nothing/change/").status_code == 404


def test_the_desk_wants_a_csrf_token(as_role: Any) -> None:  # noqa: F811
    operator = as_role("operator")
    operator.handler.enforce_csrf_checks = True
    assert operator.post(f"{PAGE}retry_after_max_seconds/change/", {"value": "90", "reason": "x"}).status_code == 403
