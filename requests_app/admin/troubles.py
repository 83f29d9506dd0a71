"""What keeps the system from working as it should, in sentences: for the first page and for `relayer_status`."""

from __future__ import annotations

from typing import Final

from requests_app.admin import cells
from requests_app.overview import Overview
from requests_app.states import Status
from requests_app.store.overview import Listener, Signer

SILENCE_SECONDS: Final = 15.0
COMMAND_SECONDS: Final = 60.0


def troubles(now: Overview) -> list[str]:
    """What keeps the system from working as it should, in sentences; empty when nothing does."""
    found: list[str] = []
    for listener in now.listeners:
        found += listener_troubles(listener)
    if not now.listeners:
        found.append("No listener has started yet: nothing is read from any chain.")
    for signer in now.signers:
        found += signer_troubles(signer)
    if not cluster_works(now, "settle"):
        found.append("Nobody works the settle cluster: nothing is checked or sent.")
    if not cluster_works(now, "sweep"):
        found.append("Nobody works the sweep cluster: nothing times out or is cleaned up.")
    overdue = sum(row.overdue for row in now.live if row.status != Status.NEEDS_REVIEW.value)
    if overdue:
        found.append(f"Past the deadline of their state: {counted(overdue, 'request')}.")
    ignored = sum(row.rows for row in now.commands if row.oldest_seconds > COMMAND_SECONDS)
    if ignored:
        found.append(
            f"{counted(ignored, 'command')} waiting for more than {cells.duration(COMMAND_SECONDS)}: decisions are not carried out."
        )
    dead = sum(row.rows for row in now.dead)
    if dead:
        found.append(f"{counted(dead, 'chain event')} that could not be applied.")
    if now.letters.rows:
        found.append(f"{counted(now.letters.rows, 'job')} given up: dead letters wait for a person.")
    return found


def counted(number: int, noun: str, many: str = "") -> str:
    """A number with its noun: 1 request, 2 requests; `many` where an s does not do."""
    return f"{cells.number(number)} {noun if number == 1 else many or f'{noun}s'}"


def cluster_works(now: Overview, cluster: str) -> bool:
    """Whether a shift of the cluster holds its lease, or a plain worker of it shows a sign of life."""
    shift = any(row.seconds_left > 0 and row.resource.startswith(f"shift:{cluster}") for row in now.leases)
    return shift or any(
        row.beat_age_seconds < SILENCE_SECONDS and row.resource.startswith(f"worker:{cluster}@") for row in now.beats
    )


def listener_troubles(row: Listener) -> list[str]:
    """What is wrong with one chain source."""
    if row.halted:
        return [f"Source {row.name} is halted: {row.halted}"]
    if (row.lease_seconds_left or 0.0) <= 0.0:
        return [f"Nobody listens to {row.name}."]
    if row.turn_age_seconds is not None and row.turn_age_seconds > SILENCE_SECONDS:
        return [f"The listener of {row.name} has not turned for {cells.duration(row.turn_age_seconds)}."]
    return []


def signer_troubles(row: Signer) -> list[str]:
    """What is wrong with one signer."""
    name = f"Signer 0x{row.address.hex()[:8]}…{row.address.hex()[-6:]}"
    if row.status != "active":
        return [f"{name} is {row.status}."]
    if row.balance_wei is not None and row.balance_wei <= 0:
        return [f"{name} has no native balance."]
    return []
