"""schemathesis over the committed OpenAPI document against the running stack: FUZZ_SECONDS of it (30 by default, 300 in `make fuzz`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.wire import fuzzing
from tests.wire.world import World

SECONDS = int(os.environ.get("FUZZ_SECONDS", "30"))
KINDS = ("input-proof", "public-decrypt", "user-decrypt")


@pytest.mark.timeout(3 * SECONDS + 400)
def test_no_crash_no_undocumented_status_every_documented_one(
    world: World, ended: dict[tuple[int, str], tuple[str, str]], tmp_path: Path
) -> None:
    jobs = {kind: [job for path, job in world.ended_jobs if kind in path] for kind in KINDS}
    for kind, form in zip(KINDS, ("input_proof", "public_decrypt", "user_decrypt"), strict=True):
        submission = world.submission(form)  # type: ignore[arg-type]
        job = world.post(submission)
        world.result_of(submission, job)
        waiting = world.draft("public_decrypt")
        jobs[kind].append(job)
        jobs["public-decrypt"].append(world.post(world.allow(waiting, commit=False)))
    done, seen = fuzzing.run(world, jobs, SECONDS, tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    total, accepted = fuzzing.posts(seen)
    missing = fuzzing.documented() - set(seen)
    directed = fuzzing.direct(world, missing, jobs)
    print(
        f"{sum(seen.values())} exchanges in {SECONDS} s; {accepted} of {total} POSTs accepted ({100 * accepted // max(total, 1)} %)"
    )
    print(
        f"statuses: {len(set(seen) & fuzzing.documented())} of {len(fuzzing.documented())} met by chance, {len(missing)} sought by directed requests"
    )
    undocumented = (set(seen) | set(directed)) - fuzzing.documented()
    assert not undocumented
    assert accepted >= 0.3 * total
    assert not fuzzing.documented() - set(seen) - set(directed)
