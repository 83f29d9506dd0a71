"""The signers a process holds: claiming, comparing with the chain, and what keeps one from taking new work.

A signer works for one process at a time, under the lease `signer:<chain>:<0xaddress>`. Its nonces come from the database alone;
the chain is asked for its counts, never for the next nonce (reference queue_settle 4.8).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

from requests_app.crash_points import crash_point
from requests_app.errors import StaleEpoch
from requests_app.models.signing import SignerStatus
from requests_app.store import signing
from requests_app.store.signing import SignerReason
from workers import funds
from workers.chain.hexdata import hex_data
from workers.chain.rpc_errors import Ok
from workers.chain.signer import LocalSigner
from workers.funds import FUND_REASONS, Funds
from workers.lane import Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

SYNC_SECONDS: Final = 10.0
SYNC_RETRY_SECONDS: Final = 0.5
FIRST_SIGNER_SECONDS: Final = 0.1
FURTHER_SIGNER_SECONDS: Final = 1.0
"""A process with a signer leaves the others to processes without one for this long between its own tries."""


class SignerPool:
    """The configured keys and the lanes held for them. One a shift."""

    def __init__(self, chain_id: int, keys: Sequence[bytes]) -> None:
        self.chain_id = chain_id
        self._signers = [LocalSigner(key, chain_id) for key in keys]
        self._lanes: dict[bytes, Lane] = {}
        self._known = False
        self._next_try = 0.0

    def lanes(self, context: ShiftContext) -> list[Lane]:
        """The lanes this process holds now, after trying for one more where that is due."""
        for address, lane in list(self._lanes.items()):
            if lane.held.lost:
                log.warning(
                    "signer lost", extra={"action": "signer_lost", "signer": lane.name, "epoch": lane.held.epoch}
                )
                del self._lanes[address]
        if monotonic() >= self._next_try and len(self._lanes) < len(self._signers):
            self._try_one(context)
        return list(self._lanes.values())

    def release(self) -> None:
        """Give every signer up, so that the next process need not wait."""
        for lane in self._lanes.values():
            lane.held.release()
        self._lanes.clear()

    def _try_one(self, context: ShiftContext) -> None:
        if not self._known:
            crash_point("before_ensure_signers_commit")
            signing.ensure_signers(context.conn, self.chain_id, [signer.address for signer in self._signers])
            crash_point("after_ensure_signers_commit")
            self._known = True
        for signer in self._signers:
            if signer.address in self._lanes:
                continue
            held = context.leases.try_hold(f"signer:{self.chain_id}:{hex_data(signer.address)}")
            if held is not None:
                self._lanes[signer.address] = Lane(held, signer)
                log.info(
                    "signer held",
                    extra={"action": "signer_held", "signer": hex_data(signer.address), "epoch": held.epoch},
                )
                break
        pause = FURTHER_SIGNER_SECONDS if self._lanes else FIRST_SIGNER_SECONDS
        self._next_try = monotonic() + pause * random.uniform(0.8, 1.2)


def sync(context: ShiftContext, lane: Lane) -> bool:
    """Compare the lane with the chain when that is due; whether the lane has been compared at all.

    At the first look of a claim this comes before everything else. A count past our counter means that the key was used
    elsewhere: the signer is blocked in the same statement.
    """
    now = monotonic()
    if now < lane.sync_at:
        return lane.state is not None
    # The chain is read before the row, on purpose: the counter may only have grown since.
    crash_point("before_sync_signer_rpc")
    (answer,) = context.clients.gateway.accounts([lane.address])
    crash_point("after_sync_signer_rpc")
    if not isinstance(answer, Ok):
        lane.sync_at = now + SYNC_RETRY_SECONDS
        return lane.state is not None
    account = answer.value
    held = funds.read(context, lane.address, account.balance)
    crash_point("before_sync_signer_commit")
    try:
        synced = signing.sync_signer(
            context.conn,
            lane.fence,
            lane.signer.chain_id,
            lane.address,
            latest=account.latest,
            pending=account.pending,
            balance=held.native,
            fee_balance=held.fee_balance,
            fee_allowance=held.fee_allowance,
        )
    except StaleEpoch:
        lane.held.release()
        return False
    crash_point("after_sync_signer_commit")
    first = lane.state is None
    lane.state = synced.signer
    if first:
        # How long the count has stood still is longer than a shift: kept in the lane alone, nothing was ever stuck.
        lane.stood_before(synced.signer.chain_nonce_latest or 0, synced.still)
    _note_reorg(lane, synced.reorg, account.latest)
    lane.saw_chain_count(account.latest)
    if first:
        lane.moved_at = lane.rose_at
    lane.sync_at = now + SYNC_SECONDS
    lane.has_open = True  # asked again: a person's decision may have reopened an attempt
    if synced.foreign_use:
        _note_foreign_use(lane, account.latest)
    _judge_funds(context, lane, held)
    return True


def hold_back(
    context: ShiftContext, lane: Lane, status: SignerStatus, reason: SignerReason, seconds: float = SYNC_SECONDS
) -> None:
    """Take the signer out of work: paused until gas is there again, blocked until a person has looked."""
    lane.sync_at = min(lane.sync_at, monotonic() + seconds)
    if lane.state is None:
        return
    crash_point("before_hold_back_commit")
    changed = signing.set_signer_status(context.conn, lane.fence, lane.id, status, reason, was=SignerStatus.ACTIVE)
    crash_point("after_hold_back_commit")
    lane.state = lane.state._replace(status=status, reason=reason.value)
    if changed:
        log.error(
            "signer held back",
            extra={"action": "signer_held_back", "signer": lane.name, "status": status.value, "reason": reason.value},
        )


def refresh(context: ShiftContext, lane: Lane) -> None:
    """Ask the chain's count of mined transactions again, for the window."""
    crash_point("before_refresh_count_rpc")
    (answer,) = context.clients.gateway.transaction_counts([lane.address])
    crash_point("after_refresh_count_rpc")
    lane.refreshed_at = monotonic()
    if isinstance(answer, Ok):
        lane.saw_chain_count(answer.value)


def _note_foreign_use(lane: Lane, chain_nonce: int) -> None:
    lane.foreign_use = True
    log.error(
        "signer key used elsewhere: blocked",
        extra={"action": "signer_blocked", "signer": lane.name, "chain_nonce": chain_nonce},
    )


def _note_reorg(lane: Lane, reorg: int, latest: int) -> None:
    """After a reorganisation the count of mined transactions may have fallen: what was mined is offered again from there."""
    if lane.reorg is not None and reorg != lane.reorg:
        lane.reorganised(latest)
    elif lane.clock() < lane.count_may_fall_until and latest < lane.chain_latest:
        lane.fell(latest)
    lane.reorg = reorg


def _judge_funds(context: ShiftContext, lane: Lane, held: Funds) -> None:
    """Pause a signer that is short of something, and work on when it has come. Only a pause of this kind ends so."""
    state, short = lane.state, held.short
    if state is None:
        return
    if short is not None:
        if state.status is SignerStatus.ACTIVE:
            hold_back(context, lane, SignerStatus.PAUSED, short)
        return
    if state.status is not SignerStatus.PAUSED or state.reason not in FUND_REASONS:
        return
    crash_point("before_lift_pause_commit")
    lifted = signing.set_signer_status(
        context.conn, lane.fence, lane.id, SignerStatus.ACTIVE, None,
        was=SignerStatus.PAUSED, was_reason=SignerReason(state.reason),
    )  # fmt: skip
    crash_point("after_lift_pause_commit")
    if lifted:
        lane.state = state._replace(status=SignerStatus.ACTIVE, reason=None)
        lane.resend_all = True
