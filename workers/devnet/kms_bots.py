"""The 13 KMS nodes in one process. Every share and every result is signed by its node's own test key.

Public results are signed over empty extra data when the request used version 0 (that is what SDKs expect), over the
request's extra data otherwise; shares over the request's extra data as it is.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from workers.devnet import eip712
from workers.devnet.accounts import labelled
from workers.devnet.bot import Bot, Outgoing, Task
from workers.devnet.contracts import contract
from workers.devnet.control import Behaviour
from workers.devnet.deployment import Deployment
from workers.devnet.handles import clear_values
from workers.devnet.layout import Layout
from workers.devnet.sending import Call, Sender

SHARE_BYTES: Final = 352
SHARES_A_TRANSACTION: Final = 130
RESULTS_A_TRANSACTION: Final = 40
SHARE_GAS: Final = 150_000
RESULT_GAS: Final = 350_000
BASE_GAS: Final = 200_000
FORGER: Final = labelled("forger of shares")

_DECRYPTION: Final = contract("Decryption")
_PUBLIC_EVENT: Final = _DECRYPTION.event("PublicDecryptionRequest(uint256,bytes32[],bytes)")
_LEGACY_EVENT: Final = _DECRYPTION.event("UserDecryptionRequest(uint256,bytes32[],address,bytes,bytes)")
_UNIFIED_EVENT: Final = _DECRYPTION.event(
    "UserDecryptionRequest(uint256,(bytes32,address,address)[],(address,bytes,address[],(uint256,uint256),bytes,bytes))"
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a node needs to know of a request. `public_key` is empty for public ones."""

    handles: tuple[bytes, ...]
    public_key: bytes
    extra_data: bytes


@dataclass(frozen=True, slots=True)
class Share:
    """One node's answer to a user decryption, as the contract takes it."""

    decryption_id: int
    payload: bytes
    signature: bytes
    extra_data: bytes

    def as_tuple(self) -> tuple[int, bytes, bytes, bytes]:
        return self.decryption_id, self.payload, self.signature, self.extra_data


def share_payload(node: int, request: Request) -> bytes:
    """Bytes of the size of a real share, the same whenever the node is asked again."""
    seed = b"".join((node.to_bytes(2, "big"), request.public_key, *request.handles))
    return hashlib.shake_256(seed).digest(SHARE_BYTES)


def signed_extra_data(extra_data: bytes) -> bytes:
    """The extra data under a public result."""
    return b"" if extra_data in (b"", b"\x00") else extra_data


def share_digest(domain: bytes, request: Request, payload: bytes) -> bytes:
    """What a node signs for its share."""
    handles = list(request.handles)
    return eip712.digest(domain, eip712.SHARE, request.public_key, handles, payload, request.extra_data)


class KmsBot(Bot):
    """Answers public and user decryptions."""

    name = "kms"

    def __init__(self, deployment: Deployment, layout: Layout) -> None:
        super().__init__(deployment, layout)
        gateway = deployment.gateway
        self._nodes = deployment.kms
        self._threshold = int(deployment.raw["kms_threshold"])
        self._decryption: str = gateway["decryption"]
        self._domain = eip712.domain("Decryption", gateway["chain_id"], self._decryption)
        self._sender = Sender(self.rpc, self._nodes[0].sender, gateway["chain_id"])

    def address(self) -> str:
        return self._decryption

    def topics(self) -> list[str]:
        return [_PUBLIC_EVENT.topic, _LEGACY_EVENT.topic, _UNIFIED_EVENT.topic]

    def task(self, log: dict[str, Any]) -> Task:
        topic, request_id = log["topics"][0], int(log["topics"][1], 16)
        block = int(log["blockNumber"], 16)
        if topic == _PUBLIC_EVENT.topic:
            handles, extra_data = _PUBLIC_EVENT.decode(log)
            return Task("public", request_id, block, Request(tuple(handles), b"", extra_data), monotonic())
        if topic == _LEGACY_EVENT.topic:
            handles, _, public_key, extra_data = _LEGACY_EVENT.decode(log)
            return Task("user", request_id, block, Request(tuple(handles), public_key, extra_data), monotonic())
        entries, payload = _UNIFIED_EVENT.decode(log)
        request = Request(tuple(entry[0] for entry in entries), payload[1], payload[5])
        return Task("user", request_id, block, request, monotonic())

    def is_answered(self, task: Task) -> bool:
        data = _DECRYPTION.call("isDecryptionDone", task.request_id)
        return bool(_DECRYPTION.result("isDecryptionDone", self.rpc.eth_call(self._decryption, data))[0])

    def answers(self, tasks: Sequence[Task]) -> list[Outgoing]:
        results = [self._result(task) for task in tasks if task.kind == "public"]
        shares: list[Share] = []
        unchecked: list[Call] = []
        for task in tasks:
            if task.kind == "user":
                self._user(task, shares, unchecked)
        whole = [found for found in results if found]
        members = [share.as_tuple() for share in shares]
        calls = self._bulk("publicDecryptionResponses", whole, RESULTS_A_TRANSACTION, RESULT_GAS)
        calls += self._bulk("userDecryptionResponses", members, SHARES_A_TRANSACTION, SHARE_GAS)
        return [Outgoing(self._sender, [*calls, *unchecked], tasks)]

    def _result(self, task: Task) -> tuple[int, bytes, list[bytes], bytes] | None:
        """One public result with signatures up to the threshold, or None when too few nodes take part."""
        behaviour, request = self.behaviour(task), task.request
        willing = [node for node in self._participants(behaviour) if node not in behaviour.corrupt_nodes]
        if len(willing) < self._threshold:
            return None
        extra_data = signed_extra_data(request.extra_data)
        result = clear_values(request.handles)
        message = eip712.digest(self._domain, eip712.PUBLIC, list(request.handles), result, extra_data)
        signatures = [eip712.sign(self._nodes[node - 1].signer.key, message) for node in willing[: self._threshold]]
        return task.request_id, result, signatures, extra_data

    def _user(self, task: Task, shares: list[Share], unchecked: list[Call]) -> None:
        """Adds the shares that are due now; a task with a pause between shares comes back for the next one."""
        behaviour = self.behaviour(task)
        if task.nodes is None:
            task.nodes = self._participants(behaviour)
        paced = behaviour.share_pause_seconds > 0
        for node in task.nodes[:1] if paced else task.nodes:
            share = self._share(task, node, behaviour)
            if node in behaviour.forge_nodes:
                unchecked.append(self._unchecked(share, task.sent_shares))
            else:
                shares.append(share)
            task.sent_shares += 1
        task.nodes = task.nodes[1:] if paced else []
        if task.nodes:
            self.later(task, behaviour.share_pause_seconds)
            return
        unchecked += self._surplus(task, behaviour)

    def _share(self, task: Task, node: int, behaviour: Behaviour) -> Share:
        request: Request = task.request
        payload = share_payload(node, request)
        if node in behaviour.corrupt_nodes:
            payload = payload[::-1]
        key = FORGER.key if node in behaviour.forge_nodes else self._nodes[node - 1].signer.key
        signature = eip712.sign(key, share_digest(self._domain, request, payload))
        return Share(task.request_id, payload, signature, request.extra_data)

    def _surplus(self, task: Task, behaviour: Behaviour) -> Iterable[Call]:
        """Repeated and unknown share events, past the contract's checks."""
        for index in range(behaviour.repeat_shares):
            yield self._unchecked(self._share(task, self._participants(behaviour)[index], behaviour), index)
        for place in range(behaviour.extra_shares):
            share = self._share(task, 1, Behaviour(forge_nodes=(1,)))
            yield self._unchecked(share, len(self._nodes) + place)

    def _unchecked(self, share: Share, index: int) -> Call:
        values = (share.decryption_id, index, share.payload, share.signature, share.extra_data)
        return Call(self._decryption, _DECRYPTION.call("emitUncheckedShare", *values), BASE_GAS + SHARE_GAS)

    def _bulk(self, function: str, members: Sequence[object], size: int, gas: int) -> list[Call]:
        """Calls of a bulk function with at most `size` members each."""
        parts = [members[start : start + size] for start in range(0, len(members), size)]
        return [Call(self._decryption, _DECRYPTION.call(function, part), BASE_GAS + gas * len(part)) for part in parts]

    def _participants(self, behaviour: Behaviour) -> list[int]:
        """Numbers of the nodes that answer, in the order in which they do."""
        nodes = [node for node in range(1, len(self._nodes) + 1) if node not in behaviour.withhold_nodes]
        if behaviour.order == "reverse":
            nodes.reverse()
        elif behaviour.order == "shuffle":
            random.shuffle(nodes)
        return nodes


def run(deployment: Deployment, layout: Layout) -> None:
    """Plays the nodes until the process is ended."""
    KmsBot(deployment, layout).run()
