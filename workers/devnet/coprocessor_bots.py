"""The three coprocessors in one process: they accept or refuse proofs and commit the ciphertexts of accepted ones.

The zero-knowledge proof is not checked; handles and signatures are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from workers.devnet import eip712
from workers.devnet.bot import Bot, Outgoing, Task
from workers.devnet.ciphertext import fhe_types
from workers.devnet.contracts import contract
from workers.devnet.deployment import Deployment
from workers.devnet.handles import derive
from workers.devnet.layout import Layout
from workers.devnet.published import KEY_ID
from workers.devnet.sending import Call, Sender

PROOFS_A_TRANSACTION: Final = 40
PROOF_GAS: Final = 400_000
COMMIT_GAS: Final = 60_000
BASE_GAS: Final = 200_000

_VERIFICATION: Final = contract("InputVerification")
_COMMITS: Final = contract("CiphertextCommits")
_REQUEST_EVENT: Final = _VERIFICATION.event("VerifyProofRequest")


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof request. Addresses are 0x text."""

    chain_id: int
    contract: str
    user: str
    ciphertext: bytes
    extra_data: bytes


@dataclass(frozen=True, slots=True)
class Verified:
    """An accepted proof with its handles and the signatures of all taking part."""

    proof_id: int
    handles: list[bytes]
    signatures: list[bytes]
    extra_data: bytes

    def as_tuple(self) -> tuple[int, list[bytes], list[bytes], bytes]:
        return self.proof_id, self.handles, self.signatures, self.extra_data


def proof_digest(domain: bytes, handles: Sequence[bytes], proof: Proof) -> bytes:
    """What a coprocessor signs for an accepted proof."""
    members = (list(handles), proof.user, proof.contract, proof.chain_id, proof.extra_data)
    return eip712.digest(domain, eip712.CIPHERTEXT, *members)


class CoprocessorBot(Bot):
    """Answers input proofs."""

    name = "coprocessors"

    def __init__(self, deployment: Deployment, layout: Layout) -> None:
        super().__init__(deployment, layout)
        gateway = deployment.gateway
        self._nodes = deployment.coprocessors
        self._threshold = int(deployment.raw["coprocessor_threshold"])
        self._verification: str = gateway["input_verification"]
        self._domain = eip712.domain("InputVerification", gateway["chain_id"], self._verification)
        self._acl_by_chain = {int(host["chain_id"]): str(host["acl"]) for host in deployment.raw["host_chains"]}
        self._senders = [Sender(self.rpc, node.sender, gateway["chain_id"]) for node in self._nodes]

    def address(self) -> str:
        return self._verification

    def topics(self) -> list[str]:
        return [_REQUEST_EVENT.topic]

    def task(self, log: dict[str, Any]) -> Task:
        dapp, user, ciphertext, extra_data = _REQUEST_EVENT.decode(log)
        proof = Proof(int(log["topics"][2], 16), dapp, user, ciphertext, extra_data)
        return Task("input", int(log["topics"][1], 16), int(log["blockNumber"], 16), proof, monotonic())

    def is_answered(self, task: Task) -> bool:
        for function in ("isProofVerified", "isProofRejected"):
            data = _VERIFICATION.call(function, task.request_id)
            if _VERIFICATION.result(function, self.rpc.eth_call(self._verification, data))[0]:
                return True
        return False

    def answers(self, tasks: Sequence[Task]) -> list[Outgoing]:
        verified: list[Verified] = []
        refused: list[Task] = []
        for task in tasks:
            found = self._verify(task)
            if found is None:
                refused.append(task)
            elif len(found.signatures) >= self._threshold:
                verified.append(found)
        calls = [self._accept(verified[start : start + PROOFS_A_TRANSACTION]) for start in self._starts(verified)]
        outgoing = [Outgoing(self._senders[0], [*calls, *self._commit(verified)], tasks)]
        outgoing += self._refusals(refused)
        return outgoing

    def _verify(self, task: Task) -> Verified | None:
        """The signed answer, or None for a proof that is refused."""
        proof: Proof = task.request
        behaviour = self.behaviour(task)
        acl = self._acl_by_chain.get(proof.chain_id)
        if behaviour.reject or acl is None:
            return None
        try:
            handles = derive(proof.ciphertext, fhe_types(proof.ciphertext), acl, proof.chain_id)
        except ValueError:
            return None
        message = proof_digest(self._domain, handles, proof)
        nodes = [node for number, node in enumerate(self._nodes, 1) if number not in behaviour.withhold_nodes]
        if behaviour.order == "reverse":
            nodes.reverse()
        signatures = [eip712.sign(node.signer.key, message) for node in nodes]
        return Verified(task.request_id, handles, signatures, proof.extra_data)

    def _accept(self, part: Sequence[Verified]) -> Call:
        data = _VERIFICATION.call("verifyProofResponses", [found.as_tuple() for found in part])
        handles = sum(len(found.handles) for found in part)
        return Call(self._verification, data, BASE_GAS + PROOF_GAS * len(part) + COMMIT_GAS * handles)

    def _commit(self, verified: Sequence[Verified]) -> list[Call]:
        """The ciphertexts of accepted proofs can be decrypted from now on."""
        handles = [handle for found in verified for handle in found.handles]
        if not handles:
            return []
        data = _COMMITS.call("setCiphertextMaterials", handles, KEY_ID)
        return [Call(self.deployment.gateway["ciphertext_commits"], data, BASE_GAS + COMMIT_GAS * len(handles))]

    def _refusals(self, tasks: Sequence[Task]) -> list[Outgoing]:
        """One call a proof from each of the coprocessors that it takes to refuse it."""
        calls = [
            Call(
                self._verification, _VERIFICATION.call("rejectProofResponse", task.request_id, task.request.extra_data)
            )
            for task in tasks
        ]
        return [Outgoing(sender, calls, tasks) for sender in self._senders[: self._threshold]] if calls else []

    def _starts(self, members: Sequence[object]) -> range:
        return range(0, len(members), PROOFS_A_TRANSACTION)


def run(deployment: Deployment, layout: Layout) -> None:
    """Plays the coprocessors until the process is ended."""
    CoprocessorBot(deployment, layout).run()
