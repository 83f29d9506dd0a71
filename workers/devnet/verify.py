"""Re-checks answers against the chain and the registered test keys, apart from the relayer's own code.

Results are those of the fhEVM face: hex without 0x for payloads, values and signatures of decryptions, with 0x for
handles and signatures of input proofs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from workers.devnet import eip712
from workers.devnet.ciphertext import fhe_types
from workers.devnet.contracts import contract
from workers.devnet.coprocessor_bots import Proof, proof_digest
from workers.devnet.deployment import Deployment
from workers.devnet.handles import clear_values, derive
from workers.devnet.kms_bots import Request, share_digest, share_payload
from workers.devnet.rpc import Rpc
from workers.devnet.traffic import Submission

_DECRYPTION: Final = contract("Decryption")
_VERIFICATION: Final = contract("InputVerification")
_HANDLE_ENTRIES: Final = "(bytes32,address,address)[],(address,bytes,address[],(uint256,uint256),bytes,bytes)"
# One event of each request: the gateway emits a handles form and a material form side by side.
REQUEST_EVENTS: Final = {
    "public_decrypt": _DECRYPTION.event("PublicDecryptionRequest(uint256,bytes32[],bytes)").topic,
    "user_decrypt": _DECRYPTION.event("UserDecryptionRequest(uint256,bytes32[],address,bytes,bytes)").topic,
    "delegated": _DECRYPTION.event("UserDecryptionRequest(uint256,bytes32[],address,bytes,bytes)").topic,
    "unified": _DECRYPTION.event(f"UserDecryptionRequest(uint256,{_HANDLE_ENTRIES})").topic,
    "input_proof": _VERIFICATION.event("VerifyProofRequest").topic,
}

_SHARE: Final = _DECRYPTION.event("UserDecryptionResponse")
RESPONSE_EVENTS: Final = {
    "public_decrypt": _DECRYPTION.event("PublicDecryptionResponse"),
    "input_proof": _VERIFICATION.event("VerifyProofResponse"),
}


class Mismatch(Exception):
    """An answer is not what the chain and the registered keys say."""


class Verifier:
    """Checks results of one deployment. Every method raises Mismatch with what is wrong."""

    def __init__(self, deployment: Deployment) -> None:
        gateway = deployment.gateway
        self._deployment = deployment
        self._kms = [node.signer.address for node in deployment.kms]
        self._coprocessors = [node.signer.address for node in deployment.coprocessors]
        self._decryption = eip712.domain("Decryption", gateway["chain_id"], gateway["decryption"])
        self._verification = eip712.domain("InputVerification", gateway["chain_id"], gateway["input_verification"])

    def check(self, submission: Submission, result: dict[str, Any]) -> int:
        """Checks the `result` member of a GET answer; returns the number of signatures that were checked."""
        if submission.form == "input_proof":
            return self.input_proof(submission, result)
        if submission.form == "public_decrypt":
            return self.public_decrypt(submission, result)
        return self.user_decrypt(submission, result["result"])

    def public_decrypt(self, submission: Submission, result: dict[str, Any]) -> int:
        """The plaintexts are those of the handles, and enough distinct KMS nodes signed them."""
        value, extra_data = _bytes(result["decryptedValue"]), _bytes(result["extraData"])
        _expect(value == clear_values(submission.handles), "the decrypted value is not that of the handles")
        message = eip712.digest(self._decryption, eip712.PUBLIC, list(submission.handles), value, extra_data)
        signatures = [_bytes(signature) for signature in result["signatures"]]
        return self._quorum(message, signatures, self._kms, int(self._deployment.raw["kms_threshold"]))

    def user_decrypt(self, submission: Submission, shares: Sequence[dict[str, Any]]) -> int:
        """Every share is signed by a registered node, no node twice, and the payload is what that node sends."""
        seen: list[str] = []
        for share in shares:
            extra_data, payload = _bytes(share["extraData"]), _bytes(share["payload"])
            _expect(extra_data == submission.extra_data, "a share has other extra data than the request")
            request = Request(submission.handles, submission.public_key, extra_data)
            signer = eip712.recover(share_digest(self._decryption, request, payload), _bytes(share["signature"]))
            _expect(signer in self._kms, f"a share is signed by {signer}, not by a KMS node")
            _expect(signer not in seen, f"two shares are signed by {signer}")
            seen.append(str(signer))
            _expect(payload == share_payload(self._kms.index(str(signer)) + 1, request), f"{signer}: other payload")
        threshold = int(self._deployment.raw["kms_threshold"])
        _expect(len(seen) >= threshold, f"{len(seen)} shares, fewer than {threshold}")
        return len(seen)

    def input_proof(self, submission: Submission, result: dict[str, Any]) -> int:
        """The handles are those of the ciphertext, and enough distinct coprocessors signed them."""
        body, host = submission.body, self._deployment.host
        _expect(result["accepted"] is True, "the proof was not accepted")
        ciphertext = _bytes(body["ciphertextWithInputVerification"])
        handles = derive(ciphertext, fhe_types(ciphertext), host["acl"], int(host["chain_id"]))
        _expect([_bytes(handle) for handle in result["handles"]] == handles, "the handles are not those of the input")
        proof = Proof(
            int(host["chain_id"]), body["contractAddress"], body["userAddress"], ciphertext, submission.extra_data
        )
        message = proof_digest(self._verification, handles, proof)
        signatures = [_bytes(signature) for signature in result["signatures"]]
        threshold = int(self._deployment.raw["coprocessor_threshold"])
        return self._quorum(message, signatures, self._coprocessors, threshold)

    def chain_answer(self, rpc: Rpc, submission: Submission, reference_id: str) -> int:
        """Checks what the chain itself answered for a request id (0x text): every share of every node, also those that
        the API does not serve. Returns the number of signatures that were checked."""
        gateway = self._deployment.gateway
        address = gateway["input_verification" if submission.form == "input_proof" else "decryption"]
        event = RESPONSE_EVENTS.get(submission.form, _SHARE)
        answers = [event.decode(log) for log in rpc.logs([address], [event.topic, reference_id], 0, rpc.head())]
        _expect(bool(answers), "the chain has no answer")
        if event is _SHARE:
            shares = [{"payload": p.hex(), "signature": s.hex(), "extraData": e.hex()} for _, p, s, e in answers]
            return self.user_decrypt(submission, shares)
        _expect(len(answers) == 1, f"the chain has {len(answers)} answers")
        first, signatures, *rest = answers[0]
        signed = [signature.hex() for signature in signatures]
        if submission.form == "input_proof":
            handles = [handle.hex() for handle in first]
            return self.input_proof(submission, {"accepted": True, "handles": handles, "signatures": signed})
        result = {"decryptedValue": first.hex(), "signatures": signed, "extraData": rest[0].hex()}
        return self.public_decrypt(submission, result)

    def _quorum(self, message: bytes, signatures: Iterable[bytes], known: Sequence[str], threshold: int) -> int:
        signers = [eip712.recover(message, signature) for signature in signatures]
        foreign = [signer for signer in signers if signer not in known]
        _expect(not foreign, f"signed by {foreign}, not by a registered node")
        _expect(len(set(signers)) == len(signers), "a node signed twice")
        _expect(len(signers) >= threshold, f"{len(signers)} signatures, fewer than {threshold}")
        return len(signers)


@dataclass(frozen=True, slots=True)
class Opened:
    """A request that the chain has taken: its id and the transaction that asked for it, 0x text."""

    reference_id: str
    tx_hash: str


def requests_for(
    deployment: Deployment, rpc: Rpc, submissions: Sequence[Submission], first_block: int, last_block: int
) -> list[list[Opened]]:
    """For each submission the request events with its content in the block range, both ends included.

    One event is what there must be; two are a request that was sent, and paid for, twice.
    """
    gateway = deployment.gateway
    addresses = [gateway["decryption"], gateway["input_verification"]]
    found: dict[tuple[str, bytes], list[Opened]] = {}
    for log in rpc.logs(addresses, [sorted(set(REQUEST_EVENTS.values()))], first_block, last_block):
        opened = Opened(log["topics"][1], log["transactionHash"])
        found.setdefault((log["topics"][0], _content(log)), []).append(opened)
    return [found.get((REQUEST_EVENTS[one.form], _own_content(one)), []) for one in submissions]


def _content(log: dict[str, Any]) -> bytes:
    """What tells one request from another: the ciphertext of a proof, the handles of a decryption."""
    topic = log["topics"][0]
    if topic == REQUEST_EVENTS["input_proof"]:
        return bytes(_VERIFICATION.event("VerifyProofRequest").decode(log)[2])
    if topic == REQUEST_EVENTS["unified"]:
        entries = _DECRYPTION.event(f"UserDecryptionRequest(uint256,{_HANDLE_ENTRIES})").decode(log)[0]
        return b"".join(entry[0] for entry in entries)
    name = "PublicDecryptionRequest(uint256,bytes32[],bytes)"
    if topic != REQUEST_EVENTS["public_decrypt"]:
        name = "UserDecryptionRequest(uint256,bytes32[],address,bytes,bytes)"
    return b"".join(_DECRYPTION.event(name).decode(log)[0])


def _own_content(submission: Submission) -> bytes:
    if submission.form == "input_proof":
        return _bytes(submission.body["ciphertextWithInputVerification"])
    return b"".join(submission.handles)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Mismatch(otherwise)
