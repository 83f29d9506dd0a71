"""What is known of nonces that the chain consumed without a hash of ours, from one holder of the signer to the next.

The minute before a person is asked, and the minute between two looks of rule R5, are longer than a shift: kept in the lane alone they
began anew with every shift and were never over.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from requests_app.crash_points import crash_point
from requests_app.store import nonces as store
from requests_app.store.nonces import Missing
from workers.lane import Absence, Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

FORGET_SECONDS: Final = 300.0
"""Suspects are looked at once a minute at least: what was noted longer ago is another story, of before a reorganisation perhaps."""


def recall(context: ShiftContext, lane: Lane, nonces: Collection[int]) -> None:
    """Bring into the lane what earlier holders have seen of these nonces, in the lane's own time."""
    new = sorted(nonce for nonce in nonces if nonce not in lane.missing_since)
    now = lane.clock()
    for one in store.missing_slots(context.conn, lane.id, new, FORGET_SECONDS):
        lane.missing_since[one.nonce] = now - one.age
        lane.absences[one.nonce] = [
            Absence(now - age, endpoint) for endpoint, ages in one.absent.items() for age in sorted(ages, reverse=True)
        ]


def remember(context: ShiftContext, lane: Lane, nonces: Collection[int]) -> None:
    """Store what is known of these nonces for whoever holds the signer next: of each endpoint its first look and its last."""
    now = lane.clock()
    found = []
    for nonce in sorted(nonces):
        looks: dict[str, list[float]] = {}
        for absence in lane.absences.get(nonce, []):
            looks.setdefault(absence.endpoint, []).append(now - absence.at)
        absent = {endpoint: [max(ages), min(ages)] for endpoint, ages in looks.items()}
        found.append(Missing(nonce, now - lane.missing_since[nonce], absent))
    crash_point("before_note_missing_commit")
    store.note_missing(context.conn, lane.fence, lane.id, found)
    crash_point("after_note_missing_commit")
