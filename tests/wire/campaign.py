"""Many scenarios at once against one stack, each still its own test.

`@scenario(phase, forms)` makes a test of a function `(world, form)`. The first such test runs the bodies of all selected ones, phase
by phase, concurrently inside a phase; every test then shows the outcome of its own body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import pytest

from tests.wire.world import World
from workers.devnet.control import Behaviour
from workers.devnet.traffic import PATHS, Form

Body = Callable[[World, Form], None]
THREADS = 24
DECRYPTS: tuple[Form, ...] = ("public_decrypt", "user_decrypt", "delegated")
ALL: tuple[Form, ...] = ("input_proof", *DECRYPTS)
IDS = {form: path.removeprefix("/").replace("/", "-") for form, (path, _) in PATHS.items()}
HUGE = 2**200
KINDS = ("user", "public", "input")


SCENARIOS: dict[str, tuple[Any, Body]] = {}
SENDERS: set[str] = set()
# One scenario for each way to end badly, for tests that look at how clients take it.
ENDS: tuple[tuple[str, Form], ...] = (
    ("test_20_1_02_gateway_never_responds", "public_decrypt"),
    ("test_20_1_06_revert_enforced_pause", "public_decrypt"),
    ("test_20_1_07_revert_invalid_user_signature", "user_decrypt"),
    ("test_20_1_08_revert_insufficient_balance", "public_decrypt"),
    ("test_20_1_09_revert_insufficient_allowance", "public_decrypt"),
    ("test_20_1_10_revert_with_an_unknown_selector", "public_decrypt"),
    ("test_20_1_19_readiness_stays_false", "public_decrypt"),
    ("test_20_1_20_acl_denies_the_single_handle", "public_decrypt"),
    ("test_20_1_21_acl_rpc_errors", "public_decrypt"),
    ("test_20_1_02_gateway_never_responds", "input_proof"),
    ("test_20_1_02_gateway_never_responds", "user_decrypt"),
    ("test_20_1_07_revert_invalid_user_signature", "input_proof"),
    ("test_20_1_10_revert_with_an_unknown_selector", "input_proof"),
    ("test_20_1_10_revert_with_an_unknown_selector", "user_decrypt"),
    ("test_20_1_rejected_by_the_coprocessors", "input_proof"),
)


class Phase(IntEnum):
    """What holds for everybody while the bodies of a phase run."""

    SILENT = 1  # nobody answers requests on the gateway
    STUCK = 2  # the same; nothing else sends, so that a nonce may stay open
    PAUSED = 3  # the gateway contracts are paused
    EXPENSIVE = 4  # a request costs more fee tokens than there are
    UNAPPROVED = 5  # the relayer has not approved its fee tokens
    REJECTING = 6  # coprocessors refuse proofs
    OPEN = 7  # nothing is in the way


def scenario(phase: Phase, forms: Sequence[Form], *, sends: bool = False) -> Callable[[Body], Any]:
    """Make a test of a scenario's body, once a form.

    `sends`: the body of a silent scenario calls `world.sent.reached()` once its transaction is mined, or cannot be any more; until then
    nothing gets into the way of transactions.
    """

    def made(body: Body) -> Any:
        @pytest.mark.parametrize("form", forms, ids=[IDS[form] for form in forms])
        def test(campaign: Campaign, form: Form) -> None:
            campaign.outcome(body, form)

        test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
        test.scenario = (phase, body)  # type: ignore[attr-defined]
        SCENARIOS[body.__name__] = (phase, body)
        if sends:
            SENDERS.add(body.__name__)
        return test

    return made


class Campaign:
    """The outcomes of the selected scenarios."""

    def __init__(self, world: World, items: Iterable[Any]) -> None:
        self._world = world
        chosen = {
            (item.function.scenario[1].__name__, item.callspec.params["form"])
            for item in items
            if hasattr(item.function, "scenario")
        }
        if any("ended" in item.fixturenames for item in items):
            chosen |= set(ENDS)
        self._chosen: dict[Phase, list[tuple[Body, Form]]] = {phase: [] for phase in Phase}
        for name, form in sorted(chosen):
            phase, body = SCENARIOS[name]
            self._chosen[phase].append((body, form))
        self._outcomes: dict[tuple[str, Form], Future[None]] = {}

    def outcome(self, body: Body, form: Form) -> None:
        """Raises what the body raised."""
        self._outcomes[body.__name__, form].result(0)

    def run(self) -> None:
        """Run everything. A body that fails does not stop the others."""
        world = self._world
        with ThreadPoolExecutor(THREADS) as pool:
            with silent(world):
                waiting = self._start(pool, Phase.SILENT)
                world.sent.wait_for(sum(body.__name__ in SENDERS for body, _ in self._chosen[Phase.SILENT]))
                stuck = self._start(pool, Phase.STUCK)
                world.stuck.wait_for(len(stuck))
                for phase, switch in SWITCHES.items():
                    if self._chosen[phase]:
                        with switch(world):
                            _finish(self._start(pool, phase))
                _finish(waiting + stuck)
            with rejecting(world):
                _finish(self._start(pool, Phase.REJECTING))
            _finish(self._start(pool, Phase.OPEN))

    def _start(self, pool: ThreadPoolExecutor, phase: Phase) -> list[Future[None]]:
        started = []
        for body, form in self._chosen[phase]:
            future = pool.submit(body, self._world, form)
            self._outcomes[body.__name__, form] = future
            started.append(future)
        return started


def _finish(futures: Iterable[Future[None]]) -> None:
    for future in futures:
        future.exception()


@contextmanager
def silent(world: World) -> Iterator[None]:
    world.behave(**{kind: Behaviour(answer=False) for kind in KINDS})
    try:
        yield
    finally:
        world.behave()


@contextmanager
def rejecting(world: World) -> Iterator[None]:
    world.behave(input=Behaviour(reject=True))
    try:
        yield
    finally:
        world.behave()


@contextmanager
def paused(world: World) -> Iterator[None]:
    switches = (("Decryption", "decryption"), ("InputVerification", "input_verification"))
    for name, key in switches:
        world.as_owner(name, key, "pause")
    try:
        yield
    finally:
        for name, key in switches:
            world.as_owner(name, key, "unpause")


@contextmanager
def expensive(world: World) -> Iterator[None]:
    world.as_owner("ProtocolPayment", "payment", "setPrices", HUGE, HUGE, HUGE)
    try:
        yield
    finally:
        world.as_owner("ProtocolPayment", "payment", "setPrices", 1, 1, 1)


@contextmanager
def unapproved(world: World) -> Iterator[None]:
    """Its own approvals are the relayer's to change; the node is told to forget them."""
    slots = world.allowance_slots()
    for slot in slots:
        world.set_token_storage(slot, 0)
    try:
        yield
    finally:
        for slot in slots:
            world.set_token_storage(slot, 2**256 - 1)


SWITCHES = {Phase.PAUSED: paused, Phase.EXPENSIVE: expensive, Phase.UNAPPROVED: unapproved}
