// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

/// @notice Value types of the gateway ABI. Member order is part of every selector and topic.

/// @dev One ciphertext as the KMS finds it: handle, FHE key id, digest, and the coprocessors that hold it.
struct SnsCiphertextMaterial {
    bytes32 ctHandle;
    uint256 keyId;
    bytes32 snsCiphertextDigest;
    address[] coprocessorTxSenderAddresses;
}

/// @dev A handle with the dApp contract that may use it (legacy user decryption).
struct CtHandleContractPair {
    bytes32 ctHandle;
    address contractAddress;
}

/// @dev A handle with its dApp contract and the account that owns it (unified user decryption).
struct HandleEntry {
    bytes32 handle;
    address contractAddress;
    address ownerAddress;
}

/// @dev Window of a legacy request: start in Unix seconds, length in days.
struct RequestValidity {
    uint256 startTimestamp;
    uint256 durationDays;
}

/// @dev Window of a unified request: start in Unix seconds, length in seconds.
struct RequestValiditySeconds {
    uint256 startTimestamp;
    uint256 durationSeconds;
}

/// @dev Host chain id and the dApp contracts that a legacy signature covers.
struct ContractsInfo {
    uint256 chainId;
    address[] addresses;
}

/// @dev Who owns the ciphertexts and who decrypts for them.
struct DelegationAccounts {
    address delegatorAddress;
    address delegateAddress;
}

/// @dev What a unified request event carries beside its handles.
struct UnifiedUserDecryptionPayload {
    address userAddress;
    bytes publicKey;
    address[] allowedContracts;
    RequestValiditySeconds requestValidity;
    bytes signature;
    bytes extraData;
}

/// @dev One KMS node's share, as a member of a bulk answer.
struct UserShareAnswer {
    uint256 decryptionId;
    bytes userDecryptedShare;
    bytes signature;
    bytes extraData;
}

/// @dev One public decryption with the signatures of several KMS nodes, as a member of a bulk answer.
struct PublicAnswer {
    uint256 decryptionId;
    bytes decryptedResult;
    bytes[] signatures;
    bytes extraData;
}

/// @dev One verified proof with the signatures of several coprocessors, as a member of a bulk answer.
struct ProofAnswer {
    uint256 zkProofId;
    bytes32[] ctHandles;
    bytes[] signatures;
    bytes extraData;
}

/// @dev FHE types that the gateway can decrypt, by their code in byte 30 of a handle. Codes up to
/// `LAST_FHE_TYPE` exist in the protocol; those without a bit size here are not decryptable.
uint8 constant LAST_FHE_TYPE = 83;
