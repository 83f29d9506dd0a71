"""The send turn of a settle shift: from jobs in the queue to transactions on the wire (design 2.3).

For each held signer, in this order: compare it with the chain, broadcast again whatever has no known end, and only then take
new work. New work goes lease → re-read → estimate → TX1 (nonces, slots, signed bytes, state, committed) → broadcast → TX2
(outcomes, acknowledgements). A crash leaves nothing, or stored bytes that the next holder sends again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import psycopg
from django.conf import settings

from requests_app import backoff
from requests_app.config import config
from requests_app.crash_points import crash_point
from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import SignerStatus
from requests_app.states import Kind, Status, Verb
from requests_app.store import queue
from requests_app.store.intents import SETTLE
from requests_app.store.queue import READY, SEND, LeasedRequest, Receipt
from requests_app.store.session import retry_serialization
from requests_app.store.signing import SignerReason
from requests_app.store.turns import Board
from requests_app.transitions import sending
from requests_app.transitions.recording import Jobs
from requests_app.transitions.sending import Held, Prepared, Price, Wanted
from workers import broadcast, commands, receipts, replace, signers, stranded, verdicts, windows
from workers.carriers import Carrier, carrier_of
from workers.estimate import Estimated, current_price, delay_after, estimate
from workers.handover import Handover
from workers.lane import Lane
from workers.payments import LaneSender
from workers.settle_routes import make_settler
from workers.settling import BATCH as PAYMENT_BATCH
from workers.signers import SignerPool

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

BATCH: Final = 200
DISABLED_SECONDS: Final = 120.0
REFRESH_SECONDS: Final = 0.1
FIRST_REST_SECONDS: Final = 0.5
LONGEST_REST_SECONDS: Final = 5.0
ORPHAN_SECONDS: Final = 2.0


class SettleTurn:
    """Sends for the signers this shift holds. Make one a shift; `close` gives the signers up."""

    name = "settle"

    def __init__(self, board: Board | None = None, handover: Handover | None = None) -> None:
        self._pool: SignerPool | None = None
        self._context: ShiftContext | None = None
        self._orphans_at = 0.0
        self._board = board or Board(SEND, SETTLE)
        self._handover = handover or Handover()
        self._carrier: Carrier | None = None
        self._payments_first = False

    def run(self, context: ShiftContext) -> int:
        """One round over the held signers; how many requests and broadcasts were handled."""
        self._context, self._handover.room = context, 0
        try:
            return self._round(context)
        finally:
            self._hand_back(context)

    def close(self) -> None:
        """Release the signers, and what was left to this turn after its last round."""
        if self._pool is not None:
            self._pool.release()
        if self._context is not None:
            self._hand_back(self._context)

    def _round(self, context: ShiftContext) -> int:
        if self._pool is None:
            gateway = config().gateway
            self._pool = SignerPool(gateway.chain_id, gateway.signer_keys)
        crash_point("before_examine_rpc")
        context.clients.endpoints.examine()
        crash_point("after_examine_rpc")
        lanes = self._pool.lanes(context)
        if lanes and monotonic() >= self._orphans_at:
            self._orphans_at = monotonic() + ORPHAN_SECONDS
            crash_point("before_release_orphans_commit")
            queue.release_orphans(context.conn)
            crash_point("after_release_orphans_commit")
        handled = self._work_all(context, lanes)
        # Half of it: what waits in the queue has its share of every round.
        self._handover.room = max((min(BATCH, lane.window()) // 2 for lane in lanes if _may_send(lane)), default=0)
        return handled

    def _work_all(self, context: ShiftContext, lanes: Sequence[Lane]) -> int:
        """Each signer in turn. What breaks at one is raised when the others had theirs: it may break every time."""
        handled = 0
        failure: Exception | None = None
        for lane in lanes:
            if context.stopping():
                break
            try:
                handled += self._work(context, lane)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                lane.look_again()
                raise
            except Exception as error:
                lane.look_again()
                if failure is not None:
                    log.exception("signer's turn failed", extra={"action": "lane_failed", "signer": lane.name})
                failure = failure or error
        if failure is not None:
            raise failure
        return handled

    def _work(self, context: ShiftContext, lane: Lane) -> int:
        if not signers.sync(context, lane) or lane.held.lost:
            return 0
        handled = commands.serve_lane(context, lane, self._board) + self._maintain(context, lane)
        return handled + self._send_both(context, lane) if _may_send(lane) else handled

    def _send_both(self, context: ShiftContext, lane: Lane) -> int:
        """Payments and requests of the gateway share one window of nonces: who went first and had work goes second next time."""
        handled = 0
        first = self._payments_first
        for payments in (first, not first):
            if not lane.active or monotonic() < lane.send_at:
                break
            done = (self._settle_payments if payments else self._send)(context, lane)
            if done and payments is first:
                self._payments_first = not first
            handled += done
        return handled

    def _maintain(self, context: ShiftContext, lane: Lane) -> int:
        now = monotonic()
        if not (lane.has_open or lane.resend_all or lane.fill_due) or now < lane.maintain_at:
            return 0
        lane.maintain_at = now + broadcast.MAINTENANCE_SECONDS
        if now >= lane.finalize_at:
            lane.finalize_at = now + signers.SYNC_SECONDS
            verdicts.finalize(context, lane)
        receipts.look_up(context, lane)
        filled = replace.fill(context, lane) + windows.close(context, lane)
        return filled + broadcast.resend(context, lane) + replace.replace(context, lane) + stranded.look(context, lane)

    def _send(self, context: ShiftContext, lane: Lane) -> int:
        room = min(BATCH, self._room(context, lane))
        if room <= 0:
            return 0
        deliveries = self._handover.take(room)
        crash_point("before_lease_sends_commit")
        seconds, turns, left = float(settings.JOB_LEASE_SECONDS), self._board.turns(SEND), room - len(deliveries)
        deliveries += queue.lease_requests(context.conn, SEND, left, context.instance, seconds, turns=turns)
        crash_point("after_lease_sends_commit")
        if not deliveries:
            return 0
        ready = triage(context, lane, deliveries)
        estimated = estimate(context, lane, ready)
        if estimated.no_gas:
            signers.hold_back(context, lane, SignerStatus.PAUSED, SignerReason.INSUFFICIENT_FUNDS)
        _rest(lane, silent=estimated.silent)
        price = current_price(context) if estimated.wanted else None
        if price is None:
            estimated.delayed += [(item.held, delay_after(1)) for item in estimated.wanted]
        _put_aside(context, lane, estimated)
        if price is not None:
            self._settle(context, lane, estimated.wanted, price)
        return len(deliveries)

    def _settle_payments(self, context: ShiftContext, lane: Lane) -> int:
        room = min(PAYMENT_BATCH, self._room(context, lane))
        if room <= 0 or lane.held.lost:
            return 0
        sender = LaneSender(context, lane)
        seconds = float(settings.JOB_LEASE_SECONDS)
        self._carrier = self._carrier or carrier_of(SETTLE, self._board.turns(SETTLE))
        settler = make_settler(context.conn, sender, context.instance, lease_seconds=seconds, carrier=self._carrier)
        handled = settler.run(room)
        if handled:
            _rest(lane, silent=sender.silent)
        return len(handled)

    def _settle(self, context: ShiftContext, lane: Lane, wanted: Sequence[Wanted], price: Price) -> None:
        prepared = [] if lane.held.lost else prepare(context, lane, wanted, price)
        stored = {item.held.receipt for item in prepared}
        left = [item.held.receipt for item in wanted if item.held.receipt not in stored]
        if left:
            # Moved on meanwhile, or no longer ours to send: whoever leases them next reads them again.
            crash_point("before_left_nack_commit")
            queue.nack_jobs(context.conn, left, [delay_after(receipt.attempt) for receipt in left])
            crash_point("after_left_nack_commit")
        if not prepared:
            return
        lane.took(prepared[-1].nonce)
        jobs = Jobs([item.held.receipt for item in prepared])
        sent = broadcast.broadcast(context, lane, broadcast.outgoing(prepared), jobs)
        log.info(
            "sent",
            extra={
                "action": "sent",
                "signer": lane.name,
                "requests": len(sent),
                "first_nonce": prepared[0].nonce,
                "epoch": lane.held.epoch,
            },
        )

    def _hand_back(self, context: ShiftContext) -> None:
        """What no signer could take goes into the queue, at once for whoever can, and as never tried: a refusal must be heard twice."""
        receipts = [one.receipt for one in self._handover.take()]
        if receipts:
            crash_point("before_hand_back_commit")
            queue.move_jobs(context.conn, receipts, SEND)
            crash_point("after_hand_back_commit")

    def _room(self, context: ShiftContext, lane: Lane) -> int:
        """How many requests may be taken. The chain's count is asked again only when the window looks full."""
        room = lane.window()
        if room < BATCH and monotonic() - lane.refreshed_at >= REFRESH_SECONDS and lane.has_open:
            signers.refresh(context, lane)
            room = lane.window()
        return room


def _may_send(lane: Lane) -> bool:
    """Nothing new before everything old was offered to the node again: a gap below would hold the new ones up."""
    return lane.active and not lane.resend_all and monotonic() >= lane.send_at


def _rest(lane: Lane, *, silent: bool) -> None:
    """After silence of the chain leave the queue alone for a while: leasing only to put off would age every job."""
    lane.silences = lane.silences + 1 if silent else 0
    if silent:
        lane.send_at = monotonic() + backoff.doubled(lane.silences, FIRST_REST_SECONDS, LONGEST_REST_SECONDS)


def triage(context: ShiftContext, lane: Lane, deliveries: Sequence[LeasedRequest]) -> list[LeasedRequest]:
    """Those that are to be sent. Jobs of the others are dropped, moved back or put off; each has its reason in a row."""
    ready: list[LeasedRequest] = []
    done: list[Receipt] = []
    back: list[Receipt] = []
    disabled: list[Receipt] = []
    doubtful: list[LeasedRequest] = []
    for delivery in deliveries:
        if delivery.status is Status.PROCESSING and delivery.has_slot:
            doubtful.append(delivery)
            done.append(delivery.receipt)
        elif delivery.status is Status.PROCESSING:
            if delivery.effective:
                ready.append(delivery)
            else:
                disabled.append(delivery.receipt)
        elif delivery.status is Status.QUEUED and delivery.subject.kind is not Kind.INPUT_PROOF:
            back.append(delivery.receipt)
        else:
            done.append(delivery.receipt)
    if doubtful:
        evidence = {
            item.subject: {"signer": lane.name, "note": "in processing with a live nonce slot"} for item in doubtful
        }
        text = "a nonce of an earlier attempt is still open"
        sending.park(context.conn, lane.fence, ReasonCode.OUTCOME_UNKNOWN, evidence, text)
    _release(context, done, back, disabled)
    return ready


def prepare(context: ShiftContext, lane: Lane, wanted: Sequence[Wanted], price: Price) -> list[Prepared]:
    """TX1 for the batch. A member that breaks it is found by halving and put off alone; the others go on at once."""

    def sign(item: Wanted, nonce: int) -> tuple[bytes, bytes]:
        return lane.signer.sign(nonce, item.to, item.data, item.gas, price.max_fee, price.max_priority)

    try:
        return retry_serialization(lambda: sending.prepare_send(context.conn, lane.fence, lane.id, wanted, price, sign))
    except (ValueError, OverflowError, TypeError, psycopg.DataError, psycopg.IntegrityError) as error:
        if len(wanted) > 1:
            half = len(wanted) // 2
            return prepare(context, lane, wanted[:half], price) + prepare(context, lane, wanted[half:], price)
        log.exception(
            "request cannot be prepared",
            extra={"action": "prepare_failed", "subject": wanted[0].held.subject, "error": type(error).__name__},
        )
        return []


def _put_aside(context: ShiftContext, lane: Lane, estimated: Estimated) -> None:
    sending.end_unsent(context.conn, Verb.REFUSE, estimated.refusals, lane.fence)
    if estimated.delayed:
        held: list[Held] = [item for item, _ in estimated.delayed]
        crash_point("before_send_nack_commit")
        queue.nack_jobs(context.conn, [item.receipt for item in held], [delay for _, delay in estimated.delayed])
        crash_point("after_send_nack_commit")


def _release(
    context: ShiftContext, done: Sequence[Receipt], back: Sequence[Receipt], disabled: Sequence[Receipt]
) -> None:
    if not (done or back or disabled):
        return
    crash_point("before_send_ack_commit")
    queue.ack_jobs(context.conn, done)
    crash_point("after_send_ack_commit")
    crash_point("before_send_move_commit")
    queue.move_jobs(context.conn, back, READY)
    crash_point("after_send_move_commit")
    crash_point("before_send_put_off_commit")
    queue.nack_jobs(context.conn, disabled, [DISABLED_SECONDS] * len(disabled))
    crash_point("after_send_put_off_commit")
    log.info(
        "jobs that needed no send",
        extra={"action": "send_released", "dropped": len(done), "moved_back": len(back), "disabled": len(disabled)},
    )
