"""Carrying out commands: what stays in the database at once, what needs the chain in three steps (reference queue_settle 3.4).

A command belongs to the holder of its resource: a signer's to the signer's holder, the others to whoever holds
`singleton:commands`, who also rejects those of signers whose key is gone (`workers.keyless`). With I/O: claimed in one transaction, then signed and stored under the command's id (unique, so that a second
execution finds it and only broadcasts it again), then consumed in another.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import psycopg

from requests_app.config import config
from requests_app.crash_points import crash_point
from requests_app.errors import EvidenceUnavailable, StaleEpoch
from requests_app.models.commands import CommandKind, Target
from requests_app.models.reviews import ReviewAction
from requests_app.models.signing import AttemptKind, SlotState
from requests_app.states import Actor, Kind, Verb
from requests_app.store import commands as store
from requests_app.store.attempts import Replacement
from requests_app.store.commands import SINGLETON, OpenCommand, Outcome, SlotView
from requests_app.store.session import transaction
from requests_app.store.signing import Fence, hold_fence
from requests_app.store.turns import COMMANDS, Board
from requests_app.transitions import commands as effects
from requests_app.transitions import payment_commands
from requests_app.transitions.outcomes import Verdict, rejected
from workers import attaching, keyless, payment_evidence, replace, taking
from workers.chain.fees import FeeCeilingExceeded, Fees, bumped
from workers.chain.rpc_errors import RpcError, RpcUnavailable
from workers.chain.signer import LocalSigner
from workers.lane import Lane
from workers.leases import HeldLease

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.commands")

INTERVAL_SECONDS: Final = 0.5
STANDBY_SECONDS: Final = 1.0
_SENDS: Final = frozenset({ReviewAction.REPLACE.value, ReviewAction.CANCEL_NONCE.value})
_WITH_IO: Final = _SENDS | {ReviewAction.ATTACH.value}
_PAYMENTS_WITH_IO: Final = _SENDS | {action.value for action in payment_commands.ASKS_CHAIN}


class CommandTurn:
    """The commands that need no signer, by one process at a time."""

    name = "commands"

    def __init__(self, board: Board | None = None) -> None:
        self._board = board or Board()
        self._lease: HeldLease | None = None
        self._due_at = self._keyless_at = 0.0
        self._own: frozenset[str] | None = None

    def run(self, context: ShiftContext) -> int:
        """Carry out what is open; how many commands."""
        if monotonic() < self._due_at:
            return 0
        if self._lease is None or self._lease.lost:
            self._lease = context.leases.try_hold(SINGLETON)
        if self._lease is None:
            self._due_at = monotonic() + STANDBY_SECONDS
            return 0
        self._due_at = monotonic() + INTERVAL_SECONDS
        lease, ended = self._lease, 0
        if not self._board.found_none(COMMANDS, INTERVAL_SECONDS):
            ended = serve(context, Fence(lease.resource, lease.instance, lease.epoch), None)
        return ended + self._keyless(context)

    def close(self) -> None:
        """Give the lease up."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _keyless(self, context: ShiftContext) -> int:
        """The commands of signers whose key is in the settings no more; how many were ended."""
        if monotonic() < self._keyless_at:
            return 0
        self._keyless_at = monotonic() + keyless.INTERVAL_SECONDS
        if self._own is None:
            gateway = config().gateway
            signers = [LocalSigner(key, gateway.chain_id) for key in gateway.signer_keys]
            self._own = frozenset(store.signer_resource(gateway.chain_id, signer.address) for signer in signers)
        return keyless.reject(context, self._own)


def serve_lane(context: ShiftContext, lane: Lane, board: Board) -> int:
    """Carry out the commands of a held signer, also of a paused or blocked one; how many."""
    now = monotonic()
    if now < lane.commands_at or lane.held.lost or board.found_none(COMMANDS, INTERVAL_SECONDS):
        return 0
    lane.commands_at = now + INTERVAL_SECONDS
    done = serve(context, lane.fence, lane)
    if done:
        # What was decided may concern the signer's own state, or bytes that are due again.
        lane.sync_at = lane.maintain_at = 0.0
        lane.foreign_use, lane.resend_all, lane.has_open = False, True, True
    return done


def serve(context: ShiftContext, fence: Fence, lane: Lane | None) -> int:
    """One batch of a resource's commands, oldest first; how many were ended."""
    if not store.waits(context.conn, fence.resource):
        return 0
    ended, claimed = _first_step(context.conn, fence)
    for command in claimed:
        if context.stopping():
            break
        ended += _second_step(context, fence, lane, command)
    return ended


def _first_step(conn: psycopg.Connection[Any], fence: Fence) -> tuple[int, list[OpenCommand]]:
    """One transaction: short effects within the database are applied and consumed, the others claimed."""
    ended = 0
    with transaction(conn):
        found = store.due(conn, fence)
        claimed = [one for one in found if _needs_io(one)]
        for command in found:
            if not _needs_io(command):
                ended += store.consume(conn, fence, command.command_id, *_applied(conn, command, fence))
        store.claim(conn, fence, [one.command_id for one in claimed])
        crash_point("before_commands_commit")
    crash_point("after_commands_commit")
    return ended, claimed


def _needs_io(command: OpenCommand) -> bool:
    if command.target_kind == Target.SOURCE:
        return command.kind is CommandKind.HITL  # long, and it locks in another order than the commands beside it
    known = _PAYMENTS_WITH_IO if command.target_kind == Kind.PAYMENT else _WITH_IO
    return command.kind is CommandKind.HITL and command.payload.get("action") in known


def _applied(conn: psycopg.Connection[Any], command: OpenCommand, fence: Fence) -> Verdict:
    """The effect in a savepoint of its own: a command that breaks ends as failed and holds nobody up."""
    try:
        with transaction(conn):
            verdict = effects.apply(conn, command, fence.epoch)
    except (psycopg.OperationalError, psycopg.InterfaceError):
        raise
    except Exception as error:
        log.exception("command failed", extra={"action": "command_failed", "command": command.command_id})
        return Verdict(Outcome.FAILED, {"error": type(error).__name__})
    log.info(
        "command consumed",
        extra={"action": "command_consumed", "command": command.command_id, "outcome": verdict.outcome.value},
    )
    return verdict


def _second_step(context: ShiftContext, fence: Fence, lane: Lane | None, command: OpenCommand) -> int:
    """The effect on the chain, then the end of the command in its own transaction; 1 when it ended."""
    if command.target_kind == Target.SOURCE:
        return taking.take_chain(context, fence, command)
    try:
        if command.payload["action"] in _SENDS:
            verdict = _send(context, lane, command) if lane is not None else rejected("its signer is not known")
            moves = verdict.outcome is Outcome.APPLIED and command.payload["action"] == ReviewAction.REPLACE.value
        elif command.target_kind == Kind.PAYMENT:
            return payment_evidence.decide(context, fence, command)
        else:
            return attaching.attach(context, fence, command)
    except EvidenceUnavailable as error:
        log.warning("command waits for the chain: %s", error, extra={"action": "command_waits"})
        return 0
    with transaction(context.conn):
        hold_fence(context.conn, fence)
        if moves:
            # The chain may have decided the row meanwhile: then there is nothing to resume, and the attempt was made all the same.
            if command.target_kind == Kind.PAYMENT:
                payment_commands.resumed(context.conn, command, fence.epoch)
            else:
                effects.move(context.conn, command, Verb.RESUME, Actor.OPERATOR, fence.epoch)
        ended = store.consume(context.conn, fence, command.command_id, *verdict)
        crash_point("before_command_end_commit")
    crash_point("after_command_end_commit")
    return int(ended)


def _send(context: ShiftContext, lane: Lane, command: OpenCommand) -> Verdict:
    """Sign, store and broadcast a further attempt under the command's id; the second time only broadcast it."""
    known = store.attempt_of_command(context.conn, command.command_id)
    if known is not None:
        slot = store.slot_of(context.conn, command.subject)
        if (
            slot is not None
            and slot.state is SlotState.DEAD
            and command.payload["action"] == ReviewAction.REPLACE.value
        ):
            return rejected("its nonce is dead")
        crash_point("before_reopen_attempts_commit")
        store.reopen_attempts(context.conn, lane.id, known.nonce)
        crash_point("after_reopen_attempts_commit")
        lane.resend_all = True
        return Verdict(Outcome.APPLIED, {"tx_hash": "0x" + known.tx_hash.hex(), "nonce": known.nonce})
    with transaction(context.conn):
        subject = command.subject
        slot, refusal = _open_slot(context.conn, command)
        crash_point("before_judge_command_commit")
    crash_point("after_judge_command_commit")
    if refusal or slot is None:
        return refusal or rejected("no nonce")
    if slot.signer_id != lane.id:
        return rejected("its nonce belongs to another signer")
    made = _signed(context, lane, command, slot)
    if isinstance(made, Verdict):
        return made
    if replace.send(context, lane, [made], [subject]) == 0:
        raise StaleEpoch(f"{command.command_id}: the nonce was closed meanwhile, or the lease is gone")
    return Verdict(Outcome.APPLIED, {"tx_hash": "0x" + made.tx_hash.hex(), "nonce": made.nonce})


def _open_slot(conn: psycopg.Connection[Any], command: OpenCommand) -> tuple[SlotView | None, Verdict | None]:
    """The nonce at which a further attempt may be made, or why none may."""
    if command.target_kind == Kind.PAYMENT:
        intent, verdict = payment_commands.judged(conn, command)
        if intent is None or verdict is not None:
            return None, verdict or rejected("not found")
        ends = command.payload["action"] == ReviewAction.CANCEL_NONCE.value
        return payment_commands.open_slot(conn, intent, to_end=ends)
    subject, verdict = effects.judged(conn, command)
    slot, closed = effects.open_slot(conn, subject)
    return slot, verdict or closed


def _signed(context: ShiftContext, lane: Lane, command: OpenCommand, slot: SlotView) -> Replacement | Verdict:
    ceiling = int(command.payload.get("ceiling_wei") or context.clients.gateway.config.fee_ceiling)
    try:
        market = replace.asked_fees(context, ceiling)
    except FeeCeilingExceeded as error:
        return rejected(str(error))  # not waited for: the case would wait as well
    except (RpcError, RpcUnavailable) as error:
        raise EvidenceUnavailable(f"no usable fees: {error}") from error
    fees = bumped(Fees(slot.max_fee, slot.max_priority), market)
    if fees.max_fee_per_gas > ceiling:
        return rejected(f"it takes {fees.max_fee_per_gas} wei a gas, the ceiling is {ceiling}")
    if command.payload["action"] == ReviewAction.CANCEL_NONCE.value:
        gas = replace.noop_gas(context, lane)
        return replace.noop(lane, slot.nonce, slot.seq + 1, fees, gas, AttemptKind.CANCEL, command.command_id)
    if slot.raw is None:
        return rejected("nothing was ever signed for it")
    return replace.repriced(lane, slot.nonce, slot.seq + 1, slot.raw, fees, command.command_id)
