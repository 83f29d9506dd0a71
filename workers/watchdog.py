"""Looks after the q2 process groups of one host (engine_spike 1.3).

django-q2 guards its own workers, but nobody guards its sentinel and parent, nor a group that hangs. A group is known by the beats of its
slots. Stage 1: a beat older than 2 s gets a new shift for that slot, once an epoch. Stage 2: a beat older than 4.5 s, 2 s after that was
tried, or a loop that has not come round for 30 s, has the whole group killed and started again. An outage of the database is no hang: while the beats cannot be
read, and for 5 s after, there is no verdict. Nor is a slow start one: a slot is judged from its first beat on, and a group that has
given none for a minute is started again. The groups are tied to this process and end with it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
from django.conf import settings
from django.db import Error as DjangoDatabaseError
from django.db import connections

from requests_app.crash_points import crash_point
from requests_app.store import beats
from requests_app.store.session import connect
from workers import lifeline
from workers.cluster.group import group_name, slots_of
from workers.shift import new_instance
from workers.tasks import enqueue_shift

log = logging.getLogger("relayer.watchdog")

LOOK_SECONDS = 0.5
RESCUE_SECONDS = 2.0
# A watchdog that has just started, or was blind, may find a beat that old at its first look: the small remedy comes first.
RESCUE_TAKES_SECONDS = 2.0
STUCK_SECONDS = 30.0
START_SECONDS = 60.0
SETTLED_SECONDS = 8.0
OUTAGE_SECONDS = 5.0
DRAIN_SECONDS = 10.0
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 5.0


class Group:
    """One process group: started, watched, killed as a whole."""

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.slots = slots_of(name)
        self.rescued: dict[str, tuple[int, float]] = {}  # slot: the epoch that a shift was sent for, and when
        self.reported: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._delay = _FIRST_DELAY
        self._start_at = 0.0

    @property
    def lived(self) -> float | None:
        """Seconds since the group was started, None while it does not run."""
        return None if self._process is None else monotonic() - self._started_at

    def tend(self) -> None:
        """Start the group when it is due; notice when its parent has ended."""
        if self._process is None:
            if monotonic() >= self._start_at:
                self._start()
        elif self._process.poll() is not None:
            self.replace(f"its parent ended with {self._process.returncode}")

    def replace(self, reason: str) -> None:
        """Kill whatever is left of the group and have it started again."""
        log.error("group killed: %s", reason, extra={"action": "group_killed", "group": self.name, "reason": reason})
        settled = (self.lived or 0.0) > SETTLED_SECONDS
        self.kill()
        self._delay = _FIRST_DELAY if settled else min(self._delay * 2, _LONGEST_DELAY)
        self._start_at = monotonic() + self._delay

    def kill(self) -> None:
        """SIGKILL to every process of the group."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            log.debug("group already gone", extra={"action": "group_killed", "group": self.name})
        process.wait()

    def terminate(self) -> None:
        """Ask the group to come to an end."""
        if self._process is not None:
            self._process.terminate()

    def wait(self, deadline: float) -> None:
        """Wait for an orderly end until `deadline` (monotonic seconds), then kill."""
        if self._process is not None:
            try:
                self._process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                log.error("group does not end", extra={"action": "group_killed", "group": self.name})
        self.kill()

    def _start(self) -> None:
        manage = str(Path(settings.BASE_DIR) / "manage.py")
        environment = {**os.environ, "Q_CLUSTER_NAME": self.name, "RELAYER_ROLE": "worker"}
        metrics = ""
        if "PROMETHEUS_MULTIPROC_DIR" in environment:
            metrics = str(Path(environment["PROMETHEUS_MULTIPROC_DIR"]).parent / self.cluster)
            environment["PROMETHEUS_MULTIPROC_DIR"] = metrics
        arguments = (sys.executable, manage, "relayer_cluster", self.cluster, "--group", self.name)
        self._process = subprocess.Popen(
            lifeline.command(*arguments, empty=metrics),
            env=environment,
            cwd=settings.BASE_DIR,
            start_new_session=True,
        )
        self._started_at = monotonic()
        self.rescued = {}
        self.reported = set()
        log.info("group started", extra={"action": "group_started", "group": self.name, "pid": self._process.pid})


class Watchdog:
    """The loop over the groups of this host."""

    def __init__(self, clusters: Sequence[str], suffix: str = "") -> None:
        self._groups = [Group(cluster, group_name(cluster, suffix)) for cluster in clusters]
        self._instance = new_instance(f"watchdog@{settings.HOST_NAME}")
        self._resource = "-".join(part for part in (f"watchdog:{settings.HOST_NAME}", suffix) if part)
        self._conn: psycopg.Connection[Any] | None = None
        self._reachable_since: float | None = None

    def run(self, wait: Callable[[float], bool]) -> None:
        """Look every half second until `wait(seconds)` says that a stop was asked for; then end the groups."""
        try:
            while True:
                self._look()
                if wait(LOOK_SECONDS):
                    break
        finally:
            self._end()

    def _look(self) -> None:
        for group in self._groups:
            group.tend()
        try:
            seen = self._read_beats()
        except psycopg.Error as error:
            if self._reachable_since is not None:
                log.warning("beats cannot be read: %s", error, extra={"action": "watchdog_blind"})
            self._reachable_since = None
            self._conn = None
            return
        if self._reachable_since is None:
            self._reachable_since = monotonic()
        if monotonic() - self._reachable_since >= OUTAGE_SECONDS:
            for group in self._groups:
                if group.lived is not None:
                    self._judge(group, group.lived, [seen[resource] for resource in group.slots])

    def _read_beats(self) -> dict[str, beats.Beat]:
        if self._conn is None or self._conn.closed:
            self._conn = connect("worker", name="watchdog")
        host = str(settings.HOST_NAME)
        resources = [resource for group in self._groups for resource in group.slots]
        crash_point("before_watchdog_beat_commit")
        seen = beats.beat_and_look(self._conn, self._resource, self._instance, resources, pid=os.getpid(), host=host)
        crash_point("after_watchdog_beat_commit")
        return {beat.resource: beat for beat in seen}

    def _judge(self, group: Group, lived: float, seen: Sequence[beats.Beat]) -> None:
        for slot, beat in enumerate(seen):
            age, stuck = beat.age_seconds, beat.stuck_seconds
            if age is not None and age < lived:
                group.reported.add(beat.resource)
            if age is None or stuck is None or beat.resource not in group.reported:
                if lived > START_SECONDS:
                    group.replace(f"no sign of life from {beat.resource}")
                    return
                continue
            sent_for, sent_at = group.rescued.get(beat.resource, (None, 0.0))
            tried = sent_for == beat.epoch and monotonic() - sent_at >= RESCUE_TAKES_SECONDS
            if stuck > STUCK_SECONDS or (tried and age > settings.BEAT_STALE_SECONDS):
                group.replace(f"{beat.resource}: beat {age:.1f} s old, loop behind by {stuck:.1f} s")
                return
            if age > RESCUE_SECONDS and sent_for != beat.epoch:
                self._rescue(group, slot, beat)

    def _rescue(self, group: Group, slot: int, beat: beats.Beat) -> None:
        group.rescued[beat.resource] = (beat.epoch, monotonic())
        details = {"action": "slot_rescued", "resource": beat.resource, "epoch": beat.epoch}
        try:
            enqueue_shift(group.cluster, group.name, slot, after=beat.epoch, wait=float(settings.LEASE_SECONDS))
            log.warning("slot without a shift: sent one", extra=details)
        except DjangoDatabaseError as error:
            connections.close_all()
            log.warning("slot without a shift, none sent: %s", error, extra=details)

    def _end(self) -> None:
        for group in self._groups:
            group.terminate()
        deadline = monotonic() + DRAIN_SECONDS
        for group in self._groups:
            group.wait(deadline)
        if self._conn is not None:
            with self._conn as conn, suppress(psycopg.Error):
                # A host that has been stopped on purpose is not silent: its beats would look like frozen processes for ever.
                crash_point("before_forget_beats_commit")
                beats.forget_beats(conn, [self._resource, *(slot for group in self._groups for slot in group.slots)])
                crash_point("after_forget_beats_commit")
