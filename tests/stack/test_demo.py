"""The demo against the running stack, twice: every form completes, with one request event each, checked against the keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.stack.harness import ROOT, Stack

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_demo_completes_all_five_forms_and_a_payment(stack: Stack, time: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "manage.py"),
            "relayer_demo",
            "--url",
            stack.url,
            "--api-key",
            stack.api_key,
            "--json",
        ],
        env={**os.environ, "RELAYER_VAR": str(stack.var)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(done.stdout)
    assert [one["form"] for one in outcomes] == [
        "input_proof",
        "public_decrypt",
        "user_decrypt",
        "delegated",
        "unified",
        "payment",
    ]
    *outcomes, paid = outcomes
    assert (paid["status"], paid["transfers"], paid["problem"]) == ("settled", 1, "")
    assert [step["status"] for step in paid["transitions"]] == [
        "created",
        "authorized",
        "settling",
        "confirming",
        "settled",
    ]
    for one in outcomes:
        assert (one["status"], one["request_events"], one["problem"]) == ("completed", 1, "")
        assert one["signatures_checked"] > 0
        assert [step["status"] for step in one["transitions"]][-3:] == ["tx_in_flight", "receipt_received", "completed"]
