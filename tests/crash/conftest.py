"""The devnet with its bots, for the crash matrix."""

from tests.devnet.conftest import devnet

__all__ = ["devnet"]
