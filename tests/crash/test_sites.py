"""The list of crash points is derived from the source: each commit and each call of a chain stands between two of them."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.crash.scene import PENDING, aimed, every_scene, point_names
from tests.crash.sites import ROOT, crash_point_names, functions, holes, writing_statements


def test_every_commit_and_every_chain_call_stands_between_points() -> None:
    assert holes() == []


def test_names_are_unique_and_come_in_pairs() -> None:
    places = crash_point_names()
    counts = Counter(name for name, _ in places)
    assert [place for place in places if counts[place[0]] > 1] == []
    odd = {name for name in counts if not re.fullmatch(r"(before|after|between)_[a-z0-9_*]+", name)}
    assert odd == set()
    before = {name[7:] for name in counts if name.startswith("before_")}
    assert before == {name[6:] for name in counts if name.startswith("after_")}


def test_every_point_is_some_scene_s_own_or_pending_with_a_reason() -> None:
    """That processes are really killed there is what the scenes' own tests check, each for its points."""
    scenes = every_scene().values()
    owned = {name for name in point_names() if any(aimed(scene, name) for scene in scenes)}
    others = {name for name in point_names() if any(aimed(scene, name) for scene in scenes if "*" not in scene.aims)}
    pending = {name for name in point_names() if name.partition("_")[2] in PENDING}
    assert set(point_names()) - owned == pending
    assert pending & others == set(), "played, and still called pending"
    assert {name.partition("_")[2] for name in pending} == set(PENDING), "pending, but not in the source"


def test_the_source_is_really_read() -> None:
    """Enough was found for the first test to mean something."""
    known = functions()
    assert sum(len(one.writes) for one in known.values()) >= 50
    assert sum(len(one.blocks) for one in known.values()) >= 9
    assert sum(len(one.rpcs) for one in known.values()) >= 15
    assert ("sending", "store_sends") in writing_statements()
    assert ("sending", "lock_accounts") not in writing_statements()


@pytest.mark.parametrize(
    "module",
    [
        "workers.broadcast",
        "workers.readiness",
        "workers.apply",
        "requests_app.services",
        "workers.blocks",
        "workers.duties.jobs",
    ],
)
def test_a_site_without_its_points_is_a_hole(module: str) -> None:
    text = (ROOT / (module.replace(".", "/") + ".py")).read_text()
    stripped = re.sub(r"^(\s*)crash_point\(.*\)$", r"\1pass", text, flags=re.MULTILINE)
    assert holes({module: stripped})


def test_a_new_write_without_points_is_a_hole() -> None:
    text = (ROOT / "workers/settle.py").read_text()
    added = text + "\n\ndef run_more(conn, receipts):\n    queue.ack_jobs(conn, receipts)\n"
    assert any("queue.ack_jobs" in hole for hole in holes({"workers.settle": added}))
