"""The turns of a settle shift that share what one of them has seen or taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from requests_app.store.intents import SETTLE
from requests_app.store.queue import READY, SEND
from requests_app.store.turns import Board
from workers.commands import CommandTurn
from workers.handover import Handover
from workers.publisher import PublishTurn
from workers.readiness import ReadinessTurn
from workers.settle import SettleTurn

if TYPE_CHECKING:
    from workers.shift import Turn


def sharing_turns() -> list[Turn]:
    """The turns that one look serves: readiness, then sending, so that what has just become ready is sent at once, commands, publishing."""
    board = Board(READY, SEND, SETTLE, around=True)
    return [*request_turns(board), CommandTurn(board), PublishTurn(board=board)]


def request_turns(board: Board) -> list[Turn]:
    """Readiness and sending: what the one has admitted it leaves to the other, leased."""
    handover = Handover()
    return [ReadinessTurn(board, handover), SettleTurn(board, handover)]
