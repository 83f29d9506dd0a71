"""How many shares a user decryption needs: the configured number, or what the host chain says for the share's KMS context.

extraData (fhevm_internals 4.4, 8.1): empty or 0x00 = current context, answered by the setting; version 0x01 or 0x02 carries
the context id in bytes 1..33. A look-up that fails leaves the threshold open: the share is stored and counted, and the
thresholds duty asks again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from requests_app.config import Config
from requests_app.errors import ConfigurationError
from workers.chain import Clients
from workers.chain.rpc_errors import RpcError, RpcUnavailable

log = logging.getLogger("relayer.listener")

CACHE_LIMIT: Final = 10_000
RETRY_SECONDS: Final = 2.0
FRESH_SECONDS: Final = 600.0
Lookup = Callable[[int], int]


def context_of(extra_data: bytes) -> int | None:
    """The context id named in extraData; None where the configured threshold applies.

    Raises ValueError for an unknown version, a missing or a zero context.
    """
    if not extra_data or extra_data[0] == 0:
        return None
    if extra_data[0] not in (1, 2) or len(extra_data) < 33:
        raise ValueError(f"extra data of version {extra_data[0]} and {len(extra_data)} bytes names no context")
    context = int.from_bytes(extra_data[1:33], "big")
    if context == 0:
        raise ValueError("the zero context does not exist")
    return context


class Thresholds:
    """Resolves thresholds. `lookup` asks the host chain; its answers are asked for again after FRESH_SECONDS (and used until then,
    and while it does not answer), its failures after RETRY_SECONDS.
    """

    def __init__(self, static: int, lookup: Lookup | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._static = static
        self._lookup = lookup
        self._clock = clock
        self._known: dict[int, int] = {}
        self._ask_at: dict[int, float] = {}

    def prepare(self, extra_datas: Iterable[bytes]) -> None:
        """Look up the contexts that are not known yet, or no longer fresh. Call it outside of transactions: it may use the network."""
        contexts = {context for extra_data in set(extra_datas) if (context := _context(extra_data)) is not None}
        for context in contexts:
            if self._clock() >= self._ask_at.get(context, 0.0):
                self._ask(context)

    def known(self, extra_data: bytes) -> int | None:
        """The threshold as far as it is known, without the network."""
        try:
            context = context_of(extra_data)
        except ValueError:
            return None
        return self._static if context is None else self._known.get(context)

    def _ask(self, context: int) -> None:
        if self._lookup is None:
            return
        try:
            threshold = self._lookup(context)
        except (RpcError, RpcUnavailable, ConfigurationError) as error:
            self._ask_at[context] = self._clock() + RETRY_SECONDS
            log.warning(
                "threshold look-up failed",
                extra={"action": "threshold_lookup_failed", "context": hex(context), "reason": str(error)},
            )
            return
        if len(self._known) >= CACHE_LIMIT:
            self._known.clear()
            self._ask_at.clear()
        self._known[context] = threshold
        self._ask_at[context] = self._clock() + FRESH_SECONDS


def _context(extra_data: bytes) -> int | None:
    try:
        return context_of(extra_data)
    except ValueError:
        return None


def thresholds_of(settled: Config, clients: Clients) -> Thresholds:
    """The resolver of this configuration: without a ProtocolConfig address only the setting is known."""
    lookup = clients.protocol.threshold_for_context if clients.protocol is not None else None
    return Thresholds(settled.shares_threshold, lookup)
