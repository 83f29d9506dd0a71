"""Which field of a request a gateway contract's custom error blames (fhevm_internals 4.7).

The same errors as in the chain layer, which decodes them and which this package must not import; a test holds the two
tables together.
"""

from __future__ import annotations

from typing import Final

from requests_app.api.labels import SIGNATURE_FIELD, SIGNATURE_ISSUE
from requests_app.api.refusals import Detail

SIGNATURE: Final = Detail(SIGNATURE_FIELD, SIGNATURE_ISSUE)

BY_SELECTOR: Final[dict[bytes, Detail]] = {
    bytes.fromhex(selector): detail
    for selector, detail in (
        ("2a873d27", SIGNATURE),  # InvalidUserSignature
        ("f645eedf", SIGNATURE),  # ECDSAInvalidSignature
        ("fce698f7", SIGNATURE),  # ECDSAInvalidSignatureLength
        ("d78bce0c", SIGNATURE),  # ECDSAInvalidSignatureS
        (
            "b6679c3b",
            Detail("handles", "The gateway does not know the host chain of the handles"),
        ),  # HostChainNotRegistered
        ("603668c4", Detail("handles", "The gateway has disabled the host chain of the handles")),  # HostChainDisabled
        ("77ddbe81", Detail("extraData", "Names no valid KMS context")),  # InvalidKmsContext
        ("30348040", Detail("requestValidity", "The permission has expired")),  # UserDecryptionRequestExpired
        ("678fcfce", Detail("requestValidity", "The permission has expired")),  # UserDecryptionRequestExpiredSeconds
        ("f24c0887", Detail("requestValidity", "Starts in the future")),  # StartTimestampInFuture
        ("32951863", Detail("requestValidity", "Lasts longer than allowed")),  # MaxDurationDaysExceeded
        ("ae52eb12", Detail("requestValidity", "Lasts longer than allowed")),  # MaxDurationSecondsExceeded
        ("de2859c1", Detail("requestValidity", "Lasts zero days")),  # InvalidNullDurationDays
        ("a4c30391", Detail("contractAddresses", "Lacks the contract of a handle")),  # ContractNotInContractAddresses
        ("dc4d78b1", Detail("contractAddresses", "Contains the user address")),  # UserAddressInContractAddresses
        (
            "c3446ac7",
            Detail("contractAddresses", "Contains the delegator address"),
        ),  # DelegatorAddressInContractAddresses
        (
            "9590e916",
            Detail("contractsChainId", "Differs from the host chain of a handle"),
        ),  # CtHandleChainIdDiffersFromContractChainId
        ("e7f4895d", Detail("handles", "Hold more than 2048 plaintext bits")),  # MaxDecryptionRequestBitSizeExceeded
        ("2de75438", Detail("handles", "Must not be empty")),  # EmptyCtHandles
        ("240e9309", Detail("handles", "Must not be empty")),  # EmptyHandles
        ("cfae921f", Detail("handles", "Belong to different keys")),  # DifferentKeyIdsNotAllowed
        ("641950d7", Detail("handles", "Have an invalid FHE type")),  # InvalidFHEType
        ("be7830b1", Detail("handles", "Have an unsupported FHE type")),  # UnsupportedFHEType
        ("93548a66", Detail("extraData", "Has an invalid length")),  # InvalidExtraDataLength
        ("2139cc2c", Detail("extraData", "Has an unsupported version")),  # UnsupportedExtraDataVersion
        ("cb17b7a5", Detail("extraData", "Names KMS context 0")),  # InvalidNullContextId
        ("d48af942", Detail("decryptionId", "Was never requested")),  # DecryptionNotRequested
        ("4711083f", Detail("zkProofId", "Was never requested")),  # VerifyProofNotRequested
    )
}
