"""schemathesis over the committed OpenAPI document against the running stack: FUZZ_SECONDS of it (20 by default, 300 in `make fuzz`)."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.wire import fuzzing
from tests.wire.aimed import internal
from tests.wire.world import World
from workers.devnet.traffic import Form

INSTALLS = ("schemathesis",)
SECONDS = int(os.environ.get("FUZZ_SECONDS", "20"))
KINDS: dict[str, Form] = {
    "input-proof": "input_proof",
    "public-decrypt": "public_decrypt",
    "user-decrypt": "user_decrypt",
}


@pytest.mark.timeout(3 * SECONDS + 400)
def test_no_crash_no_undocumented_status_every_documented_one(
    world: World, ended: dict[tuple[int, str], tuple[str, str]], tmp_path: Path
) -> None:
    jobs = {kind: [job for path, job in world.ended_jobs if kind in path] for kind in KINDS}
    jobs["envelopes"], jobs["payment-intents"], jobs["webhooks"] = [], [], []
    with ExitStack() as pending:
        # Wanted later: they start meanwhile.
        fresh = pending.enter_context(world.starting_web())
        cut_off = pending.enter_context(world.starting_web(DATABASE_URL=fuzzing.NOWHERE))
        for kind, form in KINDS.items():
            submission, waiting = world.submission(form), world.submission(form)
            pending.enter_context(world.gateway_error("eth_estimateGas", waiting, internal()))
            job = world.post(submission)
            world.result_of(submission, job)
            jobs[kind] += [job, world.post(waiting)]
        done, seen = fuzzing.run(world, jobs, SECONDS, tmp_path)
        for kind, form in KINDS.items():  # by now the first ones may have ended, or chance has canceled them
            waiting = world.submission(form)
            pending.enter_context(world.gateway_error("eth_estimateGas", waiting, internal()))
            jobs[kind].append(world.post(waiting))
        missing = fuzzing.documented() - set(seen)
        directed = fuzzing.Direct(world, missing, jobs).run(fresh, cut_off)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    total, accepted = fuzzing.posts(seen)
    print(
        f"{sum(seen.values())} exchanges in {SECONDS} s; {accepted} of {total} POSTs accepted ({100 * accepted // max(total, 1)} %)"
    )
    print(
        f"statuses: {len(set(seen) & fuzzing.documented())} of {len(fuzzing.documented())} met by chance, {len(missing)} sought by directed requests"
    )
    undocumented = sorted((set(seen) | set(directed)) - fuzzing.documented())
    unseen = sorted(fuzzing.documented() - set(seen) - set(directed))
    assert (undocumented, unseen) == ([], [])
    assert accepted >= 0.3 * total
