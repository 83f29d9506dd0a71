"""What the tests of the transaction manager start from: the log of the listener's tests, the node and processes of the sender's."""

from __future__ import annotations

from tests.listen.conftest import log
from tests.send.conftest import node, start

__all__ = ["log", "node", "start"]
