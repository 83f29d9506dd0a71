"""The stub node and the processes of the send tests, and what a person decides about them."""

from tests.send.conftest import node, start
from tests.txm.test_commands import parked, reviewers

__all__ = ["node", "parked", "reviewers", "start"]
