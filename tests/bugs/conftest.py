"""The stub node and the processes of the send tests."""

from tests.send.conftest import node, start

__all__ = ["node", "start"]
