"""All lives of the log that tests end, each with the crash points where they end it."""

from __future__ import annotations

from tests.envelopes.lives_after import Apply, ApplyNow, Bill, Redrive, Retire, RetirePending
from tests.envelopes.lives_writing import (
    Append,
    BandAhead,
    BandDuty,
    Life,
    Publish,
    Record,
    RecordConflict,
    RecordOverlap,
)


def _around(*names: str) -> list[str]:
    return [f"{when}_{name}" for name in names for when in ("before", "after")]


LIVES: dict[type[Life], list[str]] = {
    Append: _around("append", "append_band_commit"),
    Record: _around("record_range_commit"),
    RecordOverlap: _around("seal_replayed_commit"),
    RecordConflict: _around("conflict_commit"),
    BandAhead: _around("band_commit"),
    BandDuty: _around("duty_band_commit"),
    Publish: [
        *_around("open_publisher_commit", "publisher_band_commit", "publish_commit", "publish_park_commit"),
        *_around("append"),
        "between_append_and_finish",
    ],
    Apply: _around("apply_commit"),
    ApplyNow: _around("apply_now_commit"),
    Redrive: _around("park_again_commit", "resolve_parked_commit"),
    Retire: _around(
        "band_detach", "band_drop", "mark_band_commit", "purge_published_commit", "purge_congestion_commit"
    ),
    RetirePending: _around("band_finalize"),
    Bill: _around("bill_usage_commit"),
}
