"""What can be done about a halted source, on its own page and on its case's: read on, or take the chain's version; and earlier orders."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from requests_app.admin import orders
from requests_app.admin.case_offers import Unreadable
from requests_app.admin.case_parts import APPROVE, DECIDE, Progress
from requests_app.admin.forms import DeedForm, DeedForms, Input, reason_input
from requests_app.admin.page import Notice, Section
from requests_app.admin.subject import open_case
from requests_app.models import ChainCursor, EnvelopeSource, ReviewCase
from requests_app.models.commands import Target
from requests_app.orders import Told
from requests_app.source_control import TAKE_CHAIN, lift_halt, take_chain
from requests_app.store.session import web_connection

LIFT: Final = "lift_halt"
LARGEST_BLOCK: Final = (1 << 43) - 1


def carry_out(request: HttpRequest, admin: Any, source: EnvelopeSource) -> None:
    """Write the order. Raises PermissionDenied."""

    def tell(deed: str, token: UUID, reason: str) -> Told:
        conn, person = web_connection(), int(request.user.pk or 0)
        if deed == LIFT:
            return lift_halt(conn, source_id=source.pk, token=token, reason=reason, reviewer_id=person)
        if deed != TAKE_CHAIN:
            raise ValueError(deed)
        block = _block(request.POST.get("block", ""))
        return take_chain(conn, source_id=source.pk, block=block, token=token, reason=reason, reviewer_id=person)

    orders.give(request, admin, APPROVE if request.POST.get("deed") == TAKE_CHAIN else DECIDE, tell)


def carry_out_case(request: HttpRequest, admin: Any, case: ReviewCase) -> None:
    """The same from the page of a source's case. Raises PermissionDenied."""
    source = EnvelopeSource.objects.filter(pk=case.subject_id).first()
    if source is None:
        raise PermissionDenied
    carry_out(request, admin, source)


def case_sections(request: HttpRequest, case: ReviewCase) -> list[Section]:
    """What the page of a source's case shows beside the evidence."""
    source = EnvelopeSource.objects.filter(pk=case.subject_id).first()
    if source is None:
        return []
    why = [Notice("The source is halted", source.halted, "bad")] if source.halted else []
    return [*why, *deed_sections(request, source)]


def deed_sections(request: HttpRequest, source: EnvelopeSource) -> list[Section]:
    """The deeds, while the source is halted, for those who may; and the orders so far."""
    sections: list[Section] = []
    if source.halted and request.user.has_perm(DECIDE):
        forms = [_lift()]
        refused = []
        cursor = ChainCursor.objects.filter(pk=source.pk).first()
        if cursor is None or source.chain_id <= 0:
            refused.append((_TITLE, "it is not read from a chain"))
        elif not request.user.has_perm(APPROVE):
            refused.append((_TITLE, "an approver orders it"))
        else:
            forms.append(_take(source, cursor))
        sections.append(DeedForms("What you can do", "an order to whoever carries out commands", forms, refused))
    done = orders_of(source.pk)
    return [*sections, done] if done else sections


def orders_of(source_id: int) -> Progress | None:
    """What was ordered and what became of it."""
    return orders.orders_of(Target.SOURCE, source_id, "admin:requests_app_source_orders")


_TITLE: Final = "Take the chain's version"


def _lift() -> DeedForm:
    return DeedForm(
        "Lift the halt",
        "What is stored is right: the listener reads on from the last stored block. What the chain contradicts again halts the source again.",
        LIFT,
        "Lift the halt",
        [reason_input()],
        orders.new_token(),
        ["First find out which node was wrong, and take it out of GATEWAY_RPC_URLS."],
        "warn",
    )


def _take(source: EnvelopeSource, cursor: ChainCursor) -> DeedForm:
    """`block` is offered as the case has it: the first contradiction, or where the two chains part."""
    case = open_case(Target.SOURCE, source.pk)
    found = case.evidence.get("block") if case is not None else None
    doubtful = str(found) if isinstance(found, int) else ""
    block = Input(
        "block",
        "From block",
        "the first block of which the log may hold what is not true",
        "number",
        doubtful,
        limit=13,
    )
    return DeedForm(
        _TITLE,
        "What is stored is wrong: everything from this block on leaves the log and is kept as evidence, what rested on it waits again "
        "as after a reorganisation, and the listener reads the blocks anew.",
        TAKE_CHAIN,
        _TITLE,
        [block, reason_input()],
        orders.new_token(),
        [
            f"The log is stored up to block {cursor.block}.",
            "First take the node that was wrong out of GATEWAY_RPC_URLS: the blocks are read from what is left there.",
            "Nothing is paid or asked twice: nonces that were not final are open again with the same bytes.",
            "What has ended stays as it is; when its event does not come back, it gets a case.",
        ],
        "bad",
    )


def _block(text: str) -> int:
    """A block number. Raises Unreadable."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 13 and int(text) <= LARGEST_BLOCK):
        raise Unreadable(f"A block is a number from 0 to {LARGEST_BLOCK}.")
    return int(text)
