"""The JSON shapes of the five request forms (fhevm_http 6), keys in the order in which missing ones are named."""

from __future__ import annotations

from typing import Final

from requests_app.api.json_reader import NUMBER_OR_TEXT, TEXT, ListOf, Record

ATTESTATION_TYPE: Final = "eip712-unified-user-decrypt-v1"
PAYLOAD_VERSION: Final = "2.0"
PAYLOAD_TYPE: Final = "user_decryption"

INPUT_PROOF: Final = Record(
    {
        "contractChainId": NUMBER_OR_TEXT,
        "contractAddress": TEXT,
        "userAddress": TEXT,
        "ciphertextWithInputVerification": TEXT,
        "extraData": TEXT,
    }
)

PUBLIC_DECRYPT: Final = Record({"ciphertextHandles": ListOf(TEXT), "extraData": TEXT})

_PAIR = Record({"handle": TEXT, "contractAddress": TEXT})

DIRECT: Final = Record(
    {
        "handleContractPairs": ListOf(_PAIR),
        "requestValidity": Record({"startTimestamp": TEXT, "durationDays": TEXT}),
        "contractsChainId": NUMBER_OR_TEXT,
        "contractAddresses": ListOf(TEXT),
        "userAddress": TEXT,
        "signature": TEXT,
        "publicKey": TEXT,
        "extraData": TEXT,
    }
)

DELEGATED: Final = Record(
    {
        "handleContractPairs": ListOf(_PAIR),
        "contractsChainId": NUMBER_OR_TEXT,
        "contractAddresses": ListOf(TEXT),
        "delegatorAddress": TEXT,
        "delegateAddress": TEXT,
        "startTimestamp": TEXT,
        "durationDays": TEXT,
        "signature": TEXT,
        "publicKey": TEXT,
        "extraData": TEXT,
    }
)

_PAYLOAD = Record(
    {
        "version": TEXT,
        "type": TEXT,
        "handles": ListOf(Record({"ctHandle": TEXT, "contractAddress": TEXT, "ownerAddress": TEXT})),
        "userAddress": TEXT,
        "allowedContracts": ListOf(TEXT),
        "requestValidity": Record({"startTimestamp": TEXT, "durationSeconds": TEXT}),
        "publicKey": TEXT,
        "extraData": TEXT,
    },
    closed=True,
)

UNIFIED: Final = Record({"attestationType": TEXT, "attestedPayload": _PAYLOAD, "signature": TEXT}, closed=True)
