"""A running devnet for these tests: two anvil chains, contracts, bots as processes. Started once, ended with the last of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.installing import install_anvil, share_tools
from tests.waiting import wait_until
from workers.devnet import anvil
from workers.devnet.accounts import Wallet, wallet
from workers.devnet.contracts import Event, contract
from workers.devnet.control import Behaviour, write
from workers.devnet.deploy import deploy
from workers.devnet.deployment import Deployment
from workers.devnet.layout import Layout
from workers.devnet.rpc import Rpc
from workers.devnet.sending import Call, Sender
from workers.devnet.traffic import Submission, Traffic

ROOT = Path(__file__).resolve().parents[2]
ANSWER_SECONDS = 60.0
QUICK_SECONDS = "0.1"


@contextmanager
def process(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A child that is killed at the end whatever happens."""
    child = subprocess.Popen(arguments, env=environment, cwd=ROOT)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def layout_at(var: Path) -> Layout:
    """A devnet directory of its own that shares the installed anvil."""
    share_tools(var)
    install_anvil()
    return Layout(var)


def quick_command(layout: Layout, service: str) -> list[str]:
    """A chain that is faster than the usual four blocks a second: tests wait for blocks most of their time.

    Not for those that take blocks back, for which a block's time is the time to do it in.
    """
    line = anvil.command(layout, service)
    line[line.index("--block-time") + 1] = QUICK_SECONDS
    return line


def chain(layout: Layout, service: str, *, quick: bool = False) -> Any:
    """A context with the running chain's process."""
    return process(*(quick_command if quick else anvil.command)(layout, service))


@contextmanager
def bot(layout: Layout, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A bot as a process of its own."""
    environment = {**os.environ, "RELAYER_VAR": str(layout.var), "LOG_LEVEL": "WARNING"}
    environment.pop("RELAYER_DEPLOYMENT", None)
    arguments = (sys.executable, "-m", "workers.devnet", name)
    with process(*arguments, environment=environment) as child:
        yield child


@dataclass
class Devnet:
    """The running devnet with what tests do to it."""

    layout: Layout
    deployment: Deployment
    rpc: Rpc
    traffic: Traffic
    relayer: Wallet
    sender: Sender

    def call_of(self, submission: Submission) -> Call:
        """The gateway transaction that a relayer sends for a body."""
        from tests.devnet.requesting import gateway_call

        return gateway_call(self.deployment, submission)

    def request(self, *submissions: Submission) -> list[dict[str, Any]]:
        """Sends all in one block and returns their receipts; every one must have succeeded."""
        receipts = self.rpc.receipts(self.sender.send([self.call_of(one) for one in submissions]))
        assert [receipt["status"] for receipt in receipts] == ["0x1"] * len(receipts)
        return receipts

    def decryption_logs(self, event: Event, request_id: str, contract_name: str = "decryption") -> list[dict[str, Any]]:
        return self.rpc.logs([self.deployment.gateway[contract_name]], [event.topic, request_id], 0, self.rpc.head())

    def wait_logs(
        self, event: Event, request_id: str, count: int = 1, contract_name: str = "decryption"
    ) -> list[dict[str, Any]]:
        """At least `count` logs of the event for an id, waited for."""

        def enough() -> list[dict[str, Any]] | None:
            found = self.decryption_logs(event, request_id, contract_name)
            return found if len(found) >= count else None

        found = wait_until(enough, ANSWER_SECONDS, f"{count} of {event.signature}")
        assert found is not None
        return found

    def read(self, name: str, address: str, function: str, *values: Any) -> Any:
        """The single return value of a view on the gateway."""
        abi = contract(name)
        return abi.result(function, self.rpc.eth_call(address, abi.call(function, *values)))[0]

    def as_owner(self, name: str, key: str, function: str, *values: Any) -> None:
        """A call by the deployer of the gateway contracts, mined."""
        owner = Sender(self.rpc, self.deployment.deployer, self.deployment.gateway["chain_id"])
        owner.run([Call(self.deployment.gateway[key], contract(name).call(function, *values))])


def request_id(receipt: dict[str, Any]) -> str:
    """The id (0x text) that a request's receipt carries, read from the last log, the request event itself."""
    return str(receipt["logs"][-1]["topics"][1])


@pytest.fixture(scope="package")
def devnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devnet]:
    with running(layout_at(tmp_path_factory.mktemp("devnet")), quick=True) as made:
        yield made


@contextmanager
def running(layout: Layout, *, quick: bool) -> Iterator[Devnet]:
    """All of it, for one block."""
    with ExitStack() as stack:
        for service in anvil.CHAINS:
            stack.enter_context(chain(layout, service, quick=quick))
        for name in ("kms", "coprocessors"):
            stack.enter_context(bot(layout, name))
        deploy(layout)
        deployment = Deployment.read(layout.deployment)
        rpc = deployment.gateway_rpc()
        stack.callback(rpc.close)
        traffic = Traffic(deployment)
        stack.callback(traffic.close)
        relayer = wallet(bytes.fromhex(deployment.raw["relayer_signer_keys"][0][2:]))
        yield Devnet(layout, deployment, rpc, traffic, relayer, Sender(rpc, relayer, deployment.gateway["chain_id"]))


@pytest.fixture
def behave(devnet: Devnet) -> Iterator[Callable[..., None]]:
    """Sets how the bots behave; the defaults come back at the end."""

    def set_behaviour(**behaviours: Behaviour) -> None:
        write(devnet.layout.control, **behaviours)

    yield set_behaviour
    devnet.layout.control.unlink(missing_ok=True)


def end(child: subprocess.Popen[bytes], how: int = signal.SIGTERM) -> None:
    """Ends a child and waits for it."""
    child.send_signal(how)
    child.wait(timeout=60)
