"""A real chain with the devnet's dollar, payers who sign, and processes that settle there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from requests_app.config import config
from requests_app.store import intents
from requests_app.store.intents import Intent
from requests_app.transitions import intents as transitions
from requests_app.transitions.intents import Terms
from tests.devnet.conftest import chain, layout_at
from tests.payments.journal import entries_of
from tests.waiting import wait_until
from workers.devnet import anvil
from workers.devnet.accounts import Wallet
from workers.devnet.authorization import authorize
from workers.devnet.contracts import contract
from workers.devnet.deploy import deploy
from workers.devnet.deployment import Deployment
from workers.devnet.sending import Call, Sender

DOLLAR = contract("DevnetUSD")
MERCHANT = "0x" + "5e" * 20
LATER = 4_000_000_000


@contextmanager
def running(place: Path) -> Iterator[Deployment]:
    """Both chains with their contracts, without bots."""
    layout = layout_at(place)
    with ExitStack() as stack:
        for service in anvil.CHAINS:
            stack.enter_context(chain(layout, service))
        deploy(layout)
        yield Deployment.read(layout.deployment)


def configure(settings: Any, deployment: Deployment, signers: int = 1) -> None:
    """The settings of these chains."""
    gateway, host = deployment.gateway, deployment.host
    settings.GATEWAY_CHAIN_ID, settings.GATEWAY_RPC_URLS = gateway["chain_id"], gateway["rpc_urls"]
    settings.DECRYPTION_ADDRESS, settings.INPUT_VERIFICATION_ADDRESS = (
        gateway["decryption"],
        gateway["input_verification"],
    )
    settings.GATEWAY_SIGNER_KEYS = deployment.raw["relayer_signer_keys"][:signers]
    settings.HOST_CHAINS = [{"chain_id": host["chain_id"], "url": host["rpc_url"], "acl_address": host["acl"]}]
    settings.PAYMENT_TOKENS = gateway["payment_tokens"]
    config.cache_clear()


@dataclass
class Bank:
    """Payments of one account on the chain."""

    conn: psycopg.Connection[Any]
    deployment: Deployment
    account: int
    payers: dict[int, Wallet] = field(default_factory=dict)

    @property
    def token(self) -> dict[str, Any]:
        found: dict[str, Any] = self.deployment.gateway["payment_tokens"][0]
        return found

    @property
    def chain_id(self) -> int:
        return int(self.deployment.gateway["chain_id"])

    def pay(
        self, count: int = 1, amount: int = 1_000_000, payer: int = 0, before: int = LATER, merchant: str = MERCHANT
    ) -> list[Intent]:
        """Payments of a user of the devnet, signed and authorized."""
        wallet = self.deployment.users[payer]
        terms = Terms(f"evm:{self.chain_id}", self.token["address"], wallet.address, merchant, amount)
        made = []
        for _ in range(count):
            intent = transitions.create(self.conn, self.account, terms)
            signed = authorize(self.token, self.chain_id, wallet, merchant, amount, intent.ref, before)
            made.append(transitions.authorize(self.conn, self.account, intent.public_id, signed).intent)
        return made

    def call_of(self, intent: Intent) -> Call:
        """The transfer that anybody may carry out."""
        return self._carried_out(intent.authorization or {}, intent.payer, intent.merchant, intent.amount, intent.ref)

    def moving(self, wallet: Wallet, to: str, amount: int) -> Call:
        """A transfer of a wallet's own, which has no gas for it."""
        ref = os.urandom(32)
        signed = authorize(self.token, self.chain_id, wallet, to, amount, ref, LATER)
        return self._carried_out(signed, wallet.address, to, amount, ref)

    def _carried_out(self, signed: Mapping[str, Any], payer: str, to: str, amount: int, ref: bytes) -> Call:
        raw = bytes.fromhex(signed["signature"][2:])
        window = int(signed["valid_after"]), int(signed["valid_before"])
        members = (payer, to, amount, *window, ref, raw[64], raw[:32], raw[32:64])
        return Call(self.token["address"], DOLLAR.call("transferWithAuthorization", *members))

    def as_somebody(self, *calls: Call) -> list[str]:
        """By an operator of the devnet, mined; the hashes."""
        with self.deployment.gateway_rpc() as rpc:
            hashes = Sender(rpc, self.deployment.operators[3], self.chain_id).send(calls)
            rpc.receipts(hashes)
            return hashes

    def as_owner(self, function: str, *values: Any) -> None:
        with self.deployment.gateway_rpc() as rpc:
            owner = Sender(rpc, self.deployment.deployer, self.chain_id)
            owner.run([Call(self.token["address"], DOLLAR.call(function, *values))])

    def states(self, *payments: Intent) -> list[str]:
        return [one.state.value for one in intents.read_intents(self.conn, [one.id for one in payments])]

    def entries(self, payment: Intent) -> list[str]:
        return [one.entry.kind.value for one in entries_of(self.conn, payment.ref)]

    def transfers(self) -> Counter[bytes]:
        """How often the chain shows each ref executed, by the events of the whole chain."""
        event = DOLLAR.event("AuthorizationUsed")
        with self.deployment.gateway_rpc() as rpc:
            logs = rpc.logs([self.token["address"]], [event.topic], 0, rpc.head())
        return Counter(bytes.fromhex(log["topics"][2][2:]) for log in logs)

    def wait_transfers(self, payments: list[Intent], seconds: float = 60.0) -> Counter[bytes]:
        """As `transfers` of these payments, waited for until each has one."""
        refs = {one.ref for one in payments}

        def all_there() -> Counter[bytes] | None:
            found = self.transfers()
            return found if refs <= set(found) else None

        found = wait_until(all_there, seconds, "transfers")
        assert found is not None
        return Counter({ref: count for ref, count in found.items() if ref in refs})
