"""Typed calls of the gateway chain: readiness, reconciliation views, estimates, fees, events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from requests_app.config import GatewayConfig
from workers.chain.calldata import (
    ALLOWANCE,
    BALANCE_OF,
    IS_DECRYPTION_DONE,
    IS_PROOF_REJECTED,
    IS_PROOF_VERIFIED,
    ContractCall,
    Function,
    decode_bool,
    decode_uint,
)
from workers.chain.client import LATEST, ChainClient
from workers.chain.endpoints import Endpoints
from workers.chain.events import PAYMENT_TOPICS, TOPICS, DecodedLogs, decode_logs
from workers.chain.fees import FeeCache, Fees, padded_gas, quote
from workers.chain.hexdata import hex_data, hex_quantity, quantity
from workers.chain.keccak import topic
from workers.chain.payment_events import CANCELED, USED
from workers.chain.payments import AuthorizationKey, Spent, spent_by
from workers.chain.rpc import BATCH_LIMIT, Call
from workers.chain.rpc_errors import Answer, RpcError
from workers.chain.views import mapped

REFS_A_FILTER: Final = 100
SEARCH_BLOCKS: Final = 50_000
LEAST_SEARCH_BLOCKS: Final = 64


class GatewayClient(ChainClient):
    """The gateway contracts behind the chain's endpoints. Refs are 32 bytes, amounts wei."""

    def __init__(self, endpoints: Endpoints, gateway: GatewayConfig) -> None:
        super().__init__(endpoints)
        self.config = gateway
        self._fees = FeeCache(endpoints, gateway.fee_ceiling)

    @property
    def contracts(self) -> tuple[bytes, ...]:
        """The addresses whose events matter: the two gateway contracts, and the tokens in which payments settle."""
        return self.config.decryption, self.config.input_verification, *self.config.tokens

    def fees(self, ceiling: int | None = None) -> Fees:
        """Current fees, a few seconds old at most; with a ceiling (wei a gas) of one's own instead of the settings', asked anew.

        Raises FeeCeilingExceeded, RpcError, RpcUnavailable.
        """
        return self._fees.quote() if ceiling is None else quote(self.endpoints, ceiling)

    def is_ready(self, calls: Sequence[bytes], limit: int = BATCH_LIMIT) -> list[Answer[bool]]:
        """Readiness views from `calldata.encode_readiness`, one answer each, `limit` of them a HTTP request."""
        return self.views([ContractCall(self.config.decryption, call) for call in calls], decode_bool, limit=limit)

    def is_decryption_done(self, refs: Sequence[bytes], block: str = LATEST) -> list[Answer[bool]]:
        """Whether the KMS consensus on each decryption exists."""
        return self._flags(self.config.decryption, IS_DECRYPTION_DONE, refs, block)

    def is_proof_verified(self, refs: Sequence[bytes], block: str = LATEST) -> list[Answer[bool]]:
        """Whether each input proof has been verified."""
        return self._flags(self.config.input_verification, IS_PROOF_VERIFIED, refs, block)

    def is_proof_rejected(self, refs: Sequence[bytes], block: str = LATEST) -> list[Answer[bool]]:
        """Whether each input proof has been rejected."""
        return self._flags(self.config.input_verification, IS_PROOF_REJECTED, refs, block)

    def estimate_gas(self, sender: bytes, calls: Sequence[ContractCall]) -> list[Answer[int]]:
        """Gas limits (`fees.padded_gas` of the estimate) of calls from `sender`; Failed carries the revert (`errors.revert_of`).

        On the latest block, and that is said: some nodes take the pool's transactions for done, which may never come to be.
        """
        origin = hex_data(sender)
        requests: list[Call] = [
            ("eth_estimateGas", [{"from": origin, "to": hex_data(call.to), "data": hex_data(call.data)}, LATEST])
            for call in calls
        ]
        return mapped(self.endpoints.batch(requests), lambda value: padded_gas(quantity(value)))

    def simulate(self, sender: bytes, calls: Sequence[ContractCall], block: int | None = None) -> list[Answer[str]]:
        """eth_call of transactions as `sender` would send them; after the fact at a block it shows why one reverted."""
        origin, tag = hex_data(sender), LATEST if block is None else hex_quantity(block)
        requests: list[Call] = [
            ("eth_call", [{"from": origin, "to": hex_data(call.to), "data": hex_data(call.data)}, tag])
            for call in calls
        ]
        return mapped(self.endpoints.batch(requests), str)

    def fee_balances(self, owners: Sequence[bytes]) -> list[Answer[int]]:
        """Fee token balance of each address. Raises ValueError when no fee token is configured."""
        token = self._token()
        return self.views([ContractCall(token, BALANCE_OF.encode(owner)) for owner in owners], decode_uint)

    def fee_allowances(self, owners: Sequence[bytes], spender: bytes) -> list[Answer[int]]:
        """What `spender` (the payment contract) may take from each address. Raises ValueError without a fee token."""
        token = self._token()
        calls = [ContractCall(token, ALLOWANCE.encode(owner, spender)) for owner in owners]
        return self.views(calls, decode_uint)

    def authorization_states(self, keys: Sequence[AuthorizationKey], block: str = LATEST) -> list[Answer[bool]]:
        """Whether each authorization was used or canceled (EIP-3009 authorizationState)."""
        return self.views([key.state_call for key in keys], decode_bool, block)

    def find_spent(self, key: AuthorizationKey, since: int) -> Spent | None:
        """The transaction that used or canceled an authorization; None when the logs show none.

        From the newest block backwards to the first one before `since` (Unix seconds), in ranges that the node takes. Raises
        RpcError, RpcUnavailable.
        """
        topics = ([topic(USED), topic(CANCELED)], [bytes(12) + key.authorizer], [key.ref])
        last, width = self.head_number(), SEARCH_BLOCKS
        while last >= 0:
            start = max(0, last - width + 1)
            try:
                raws = self.raw_logs(start, last, [key.token], topics)
            except RpcError:
                if width <= LEAST_SEARCH_BLOCKS:
                    raise
                width //= 8
                continue
            if found := spent_by(decode_logs(raws).envelopes):
                return found
            if start == 0 or self._block(hex_quantity(start)).timestamp < since:
                break
            last = start - 1
        return None

    def events(self, first: int, last: int) -> DecodedLogs:
        """All events of these contracts in blocks `first` to `last`. Raises RpcError, RpcUnavailable."""
        return decode_logs(self.raw_logs(first, last, self.contracts, [tuple(TOPICS)]))

    def events_of(self, refs: Sequence[bytes], first: int, last: int) -> DecodedLogs:
        """The events of these references (topic1) only. Raises RpcError, RpcUnavailable."""
        raws = []
        for start in range(0, len(refs), REFS_A_FILTER):
            part = refs[start : start + REFS_A_FILTER]
            raws += self.raw_logs(first, last, self.contracts, [tuple(TOPICS), part])
        return decode_logs(raws)

    def payment_events(self, first: int, last: int) -> DecodedLogs:
        """All payment events of the tokens in blocks `first` to `last`. Raises RpcError, RpcUnavailable."""
        if not self.config.tokens:
            return DecodedLogs([], [], 0)
        return decode_logs(self.raw_logs(first, last, tuple(self.config.tokens), [tuple(PAYMENT_TOPICS)]))

    def _flags(self, to: bytes, function: Function, refs: Sequence[bytes], block: str) -> list[Answer[bool]]:
        calls = [ContractCall(to, function.encode(int.from_bytes(ref, "big"))) for ref in refs]
        return self.views(calls, decode_bool, block)

    def _token(self) -> bytes:
        if self.config.fee_token is None:
            raise ValueError("no fee token is configured")
        return self.config.fee_token
