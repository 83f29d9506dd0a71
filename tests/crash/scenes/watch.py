"""The duties by the clock: lost jobs, figures, bands ahead, retention, keys; and the supervisors of the process groups."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tests.crash.scene import Deeds, Scene
from workers.cluster import group
from workers.duties import bands, bands_retire, figures, jobs, keys, retention
from workers.shift import ShiftContext, Turn
from workers.sweep import DutyTurn
from workers.tasks import enqueue_shift
from workers.watchdog import Watchdog

SOON = 0.05


class Swept(Scene):
    """A row without a job gets exactly one; what ended is counted once."""

    aims: ClassVar[tuple[str, ...]] = (
        "enqueue_lost_commit", "figures_commit", "waiting_figures_commit", "forget_steps_commit", "duty_band_commit", "purge_commit", "purge_congestion_commit",
    )  # fmt: skip
    constants: ClassVar = {"workers.duties.figures.SETTLE_SECONDS": 0.0, "workers.duties.jobs.IDLE_SECONDS": 0.0}

    @property
    def _robbed(self) -> Path:
        """There when the jobs were taken away."""
        return self.ground.note("robbed")

    def turns(self) -> list[Turn]:
        duties = {
            "jobs": jobs,
            "figures": figures,
            "bands": bands,
            "bands_retire": bands_retire,
            "retention": retention,
        }
        return [*super().turns(), *(DutyTurn(name, SOON, duty.run) for name, duty in duties.items())]

    def act(self, context: ShiftContext) -> None:
        # In the process, whose next turn works on what is posted: from outside the jobs may be seen too late.
        super().act(context)
        if len(self.ground.accepted()) == self.count and not self._robbed.exists():
            self.ground.conn.execute("DELETE FROM queue_job")
            self.ground.conn.execute(f"UPDATE {self.kind.table} SET updated_at = updated_at - interval '2 minutes'")
            self._robbed.touch()

    def over(self) -> bool:
        return super().over() and self._counted() >= {self.count}

    def check(self) -> None:
        super().check()
        assert self._counted() == {self.count}

    def _counted(self) -> set[int]:
        """How many ended rows each grain of the figures knows."""
        return {row[0] for row in self.ground.rows("SELECT sum(n)::int FROM finished_figure GROUP BY grain")}


class Keys(Scene):
    """The key of the protocol is published, once."""

    aims: ClassVar[tuple[str, ...]] = ("key_duty_rpc", "key_material_rpc", "publish_key_commit")
    count = 0

    def turns(self) -> list[Turn]:
        return [DutyTurn("keys", SOON, keys.run)]

    def over(self) -> bool:
        return not self.left() and self.ground.value("SELECT count(*) FROM published_key") == 1


class Supervised(Scene):
    """A process group is prepared, its watchdog looks and ends: each slot has one lease row and one first shift."""

    aims: ClassVar[tuple[str, ...]] = (
        "slot_open_commit",
        "shift_enqueue_commit",
        "watchdog_beat_commit",
        "forget_beats_commit",
    )
    count = 0
    group = "settle-crash"

    def turns(self) -> list[Turn]:
        return [Deeds(self)]

    def act(self, context: ShiftContext) -> None:
        group._prepare("settle", self.group)
        Watchdog([]).run(lambda seconds: True)
        self.ground.note("supervised").touch()

    def over(self) -> bool:
        return not self.left() and self.ground.note("supervised").exists()

    def check(self) -> None:
        slots = group.slots_of(self.group)
        held = self.ground.rows("SELECT resource FROM exec_lease WHERE resource = ANY(%s)", (slots,))
        assert len(held) == len(slots)
        # Those who slept and woke prepared it beside each other; the next one that does so alone makes it right.
        group._prepare("settle", self.group)
        shifts = self.ground.value("SELECT count(*) FROM django_q_ormq WHERE key = %s", (self.group,))
        assert shifts == len(slots)
        enqueue_shift("settle", self.group, 0, after=0, wait=1.0)  # as the safety net would: the lease lets one in
        assert self.ground.value("SELECT count(*) FROM worker_beat WHERE resource LIKE 'watchdog:%%'") == 0
