"""Request bodies such as the SDK sends, with everything on the chains that makes them acceptable. Each is unique.

`Traffic.build` makes handles that nobody has used, grants them on the host chain's ACL, commits their ciphertexts on the
gateway (one transaction a chain for the whole list), and signs the bodies with users' keys.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from eth_utils.address import to_checksum_address

from workers.devnet import eip712
from workers.devnet.accounts import Wallet
from workers.devnet.contracts import contract
from workers.devnet.deployment import Deployment
from workers.devnet.handles import EADDRESS, EBOOL, EUINT32, EUINT64, fresh
from workers.devnet.published import KEY_FILES, KEY_ID
from workers.devnet.rpc import Rpc
from workers.devnet.sending import Call, Sender

Form = Literal["input_proof", "public_decrypt", "user_decrypt", "delegated", "unified"]
FORMS: Final[tuple[Form, ...]] = ("input_proof", "public_decrypt", "user_decrypt", "delegated", "unified")
EXTRA_DATA: Final = "0x00"
# A serialized ML-KEM key of the SDK has this many bytes.
PUBLIC_KEY_BYTES: Final = 869
VALID_DAYS: Final = 7
DAY_SECONDS: Final = 86_400
# Signed a little in the past: the chain's clock may be behind this one.
START_LAG_SECONDS: Final = 60
SETUP_GAS: Final = 120_000
BASE_GAS: Final = 100_000
PART: Final = 200  # grants or commitments in one transaction
# Where a sample proof may be overwritten to make it a new one: inside the curve points, far from header and type list.
PROOF_SALT_AT: Final = 1_000

# Form to (v2/v3 path, v1 kind).
PATHS: Final[dict[Form, tuple[str, str]]] = {
    "input_proof": ("/v2/input-proof", "input-proof"),
    "public_decrypt": ("/v2/public-decrypt", "public-decrypt"),
    "user_decrypt": ("/v2/user-decrypt", "user-decrypt"),
    "delegated": ("/v2/delegated-user-decrypt", "user-decrypt"),
    "unified": ("/v3/user-decrypt", "user-decrypt"),
}


@dataclass(frozen=True, slots=True)
class Submission:
    """One body with what is needed to check its answer. Addresses and handles inside the body are 0x text."""

    form: Form
    body: dict[str, Any]
    handles: tuple[bytes, ...]
    public_key: bytes
    extra_data: bytes = b"\x00"

    @property
    def path(self) -> str:
        """The POST path of the fhEVM face; `<path>/<job id>` answers with the result."""
        return PATHS[self.form][0]

    @property
    def kind(self) -> str:
        """The kind in paths of the native face: `/v1/<kind>/<job id>`."""
        return PATHS[self.form][1]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A submission before the chains know its handles."""

    submission: Submission
    grants: tuple[bytes, ...]


class Traffic:
    """Makes submissions for one deployment. `operator` (0..3) is the account that sets up; one process at a time may
    use it."""

    def __init__(self, deployment: Deployment, operator: int = 0) -> None:
        self._deployment = deployment
        self._gateway_rpc: Rpc = deployment.gateway_rpc()
        self._host_rpc: Rpc = deployment.host_rpc()
        account = deployment.operators[operator]
        self._gateway = Sender(self._gateway_rpc, account, deployment.gateway["chain_id"])
        self._host = Sender(self._host_rpc, account, deployment.host["chain_id"])
        self._chain_id = int(deployment.host["chain_id"])
        self._users = deployment.users
        self._dapps = [to_checksum_address(address) for address in deployment.dapp_contracts]
        self._acl = contract("ACL")
        self._domain = eip712.domain("Decryption", self._chain_id, deployment.gateway["decryption"])
        self._count = 0

    def build(self, forms: Sequence[Form], extra_data: str = EXTRA_DATA, set_up: bool = True) -> list[Submission]:
        """One submission for each form, in order.

        `extra_data` goes into the decrypt forms. `set_up` False leaves the chains alone: decrypts will then be denied.
        Returns when the grants are mined.
        """
        drafts = [self._draft(form, extra_data) for form in forms]
        if set_up:
            self.set_up(
                [grant for draft in drafts for grant in draft.grants],
                [handle for draft in drafts if draft.grants for handle in draft.submission.handles],
            )
        return [draft.submission for draft in drafts]

    def set_up(self, grants: Sequence[bytes], handles: Sequence[bytes]) -> None:
        """Runs calls of the host chain's ACL and commits ciphertexts on the gateway, and waits for both chains at once.

        As few transactions as possible. Raises TransactionFailed.
        """
        granted = self._host.send(self._grants(grants))
        self._gateway.run(self._commits(handles, KEY_ID))
        self._host.wait(granted)

    def commit(self, handles: Sequence[bytes], key_id: int = KEY_ID) -> None:
        """Commits ciphertexts on the gateway (key id 0 withdraws them), and waits."""
        self._gateway.run(self._commits(handles, key_id))

    def _grants(self, calls: Sequence[bytes]) -> list[Call]:
        acl: str = self._deployment.host["acl"]
        return [Call(acl, self._acl.call("multicall", one), BASE_GAS + SETUP_GAS * len(one)) for one in _parts(calls)]

    def _commits(self, handles: Sequence[bytes], key_id: int) -> list[Call]:
        commits: str = self._deployment.gateway["ciphertext_commits"]
        abi = contract("CiphertextCommits")
        return [
            Call(commits, abi.call("setCiphertextMaterials", one, key_id), BASE_GAS + SETUP_GAS * len(one))
            for one in _parts(handles)
        ]

    def close(self) -> None:
        self._gateway_rpc.close()
        self._host_rpc.close()

    def _draft(self, form: Form, extra_data: str) -> _Draft:
        self._count += 1
        makers = {
            "public_decrypt": self._public,
            "user_decrypt": self._direct,
            "delegated": self._delegated,
            "unified": self._unified,
        }
        return self._input_proof() if form == "input_proof" else makers[form](extra_data)

    def _input_proof(self) -> _Draft:
        ciphertext = bytearray((KEY_FILES / "sample_proof.bin").read_bytes())
        ciphertext[PROOF_SALT_AT : PROOF_SALT_AT + 32] = os.urandom(32)
        body = {
            "contractAddress": self._dapps[0],
            "userAddress": to_checksum_address(self._user().address),
            "ciphertextWithInputVerification": ciphertext.hex(),
            "contractChainId": hex(self._chain_id),
            "extraData": EXTRA_DATA,
        }
        return _Draft(Submission("input_proof", body, (), b""), ())

    def _public(self, extra_data: str) -> _Draft:
        handles = self._handles(EUINT32, EBOOL)
        body = {"ciphertextHandles": [_hex(handle) for handle in handles], "extraData": extra_data}
        grants = (self._acl.call("allowForDecryption", list(handles)),)
        return _Draft(Submission("public_decrypt", body, handles, b"", _raw(extra_data)), grants)

    def _direct(self, extra_data: str) -> _Draft:
        user, handles, public_key = self._user(), self._handles(EUINT64, EUINT32), os.urandom(PUBLIC_KEY_BYTES)
        start = self._start()
        message = eip712.digest(
            self._domain, eip712.DIRECT, public_key, self._dapps, start, VALID_DAYS, _raw(extra_data)
        )
        body = {
            "handleContractPairs": self._pairs(handles),
            "requestValidity": {"startTimestamp": str(start), "durationDays": str(VALID_DAYS)},
            "contractsChainId": str(self._chain_id),
            "contractAddresses": self._dapps,
            "userAddress": to_checksum_address(user.address),
            "signature": eip712.sign(user.key, message).hex(),
            "publicKey": public_key.hex(),
            "extraData": extra_data,
        }
        grants = self._allow(handles, user.address)
        return _Draft(Submission("user_decrypt", body, handles, public_key, _raw(extra_data)), grants)

    def _delegated(self, extra_data: str) -> _Draft:
        owner, delegate = self._pair_of_users()
        handles, public_key = self._handles(EUINT64), os.urandom(PUBLIC_KEY_BYTES)
        start = self._start()
        members = (public_key, self._dapps, owner.address, start, VALID_DAYS, _raw(extra_data))
        message = eip712.digest(self._domain, eip712.DELEGATED, *members)
        body = {
            "handleContractPairs": self._pairs(handles),
            "contractsChainId": str(self._chain_id),
            "contractAddresses": self._dapps,
            "delegatorAddress": to_checksum_address(owner.address),
            "delegateAddress": to_checksum_address(delegate.address),
            "startTimestamp": str(start),
            "durationDays": str(VALID_DAYS),
            "signature": eip712.sign(delegate.key, message).hex(),
            "publicKey": public_key.hex(),
            "extraData": extra_data,
        }
        until = start + VALID_DAYS * DAY_SECONDS
        delegation = self._acl.call("setDelegation", owner.address, delegate.address, self._dapps[0], until)
        grants = (*self._allow(handles, owner.address), delegation)
        return _Draft(Submission("delegated", body, handles, public_key, _raw(extra_data)), grants)

    def _unified(self, extra_data: str) -> _Draft:
        user, handles, public_key = self._user(), self._handles(EUINT32, EADDRESS), os.urandom(PUBLIC_KEY_BYTES)
        start, seconds = self._start(), VALID_DAYS * DAY_SECONDS
        members = (user.address, public_key, self._dapps, start, seconds, _raw(extra_data))
        message = eip712.digest(self._domain, eip712.UNIFIED, *members)
        address = to_checksum_address(user.address)
        payload = {
            "version": "2.0",
            "type": "user_decryption",
            "handles": [
                {"ctHandle": _hex(handle), "contractAddress": self._dapps[0], "ownerAddress": address}
                for handle in handles
            ],
            "userAddress": address,
            "allowedContracts": self._dapps,
            "requestValidity": {"startTimestamp": str(start), "durationSeconds": str(seconds)},
            "publicKey": _hex(public_key),
            "extraData": extra_data,
        }
        body = {
            "attestationType": "eip712-unified-user-decrypt-v1",
            "attestedPayload": payload,
            "signature": _hex(eip712.sign(user.key, message)),
        }
        grants = self._allow(handles, user.address)
        return _Draft(Submission("unified", body, handles, public_key, _raw(extra_data)), grants)

    def _handles(self, *fhe_types: int) -> tuple[bytes, ...]:
        return tuple(fresh(self._chain_id, fhe_type) for fhe_type in fhe_types)

    def _pairs(self, handles: Sequence[bytes]) -> list[dict[str, str]]:
        return [{"handle": _hex(handle), "contractAddress": self._dapps[0]} for handle in handles]

    def _allow(self, handles: Sequence[bytes], account: str) -> tuple[bytes, ...]:
        """Grants to the account and to the first dApp contract."""
        targets = (account, self._dapps[0])
        return tuple(self._acl.call("allow", handle, target) for handle in handles for target in targets)

    def _user(self) -> Wallet:
        return self._users[self._count % len(self._users)]

    def _pair_of_users(self) -> tuple[Wallet, Wallet]:
        return self._user(), self._users[(self._count + 1) % len(self._users)]

    def _start(self) -> int:
        return int(time.time()) - START_LAG_SECONDS


def _parts(values: Sequence[bytes]) -> list[Sequence[bytes]]:
    """What fits into a transaction each."""
    return [values[start : start + PART] for start in range(0, len(values), PART)]


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _raw(text: str) -> bytes:
    return bytes.fromhex(text[2:])
