// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import "./GatewayErrors.sol";
import "./GatewayTypes.sol";

/// @title Rules for decryption requests that need no registry: sizes, windows, handle layout, extra data.
/// @dev Handle layout: bytes 22..29 host chain id (big endian), byte 30 FHE type, byte 31 version.
library RequestChecks {
    uint256 internal constant MAX_BITS = 2048;
    uint256 internal constant MAX_CONTRACTS = 10;
    uint256 internal constant MAX_DAYS = 365;
    uint256 internal constant MAX_SECONDS = 365 days;

    function chainIdOf(bytes32 handle) internal pure returns (uint256) {
        return uint64(uint256(handle) >> 16);
    }

    /// @notice Plaintext bits of a handle; reverts for types that cannot be decrypted.
    function bitsOf(bytes32 handle) internal pure returns (uint256) {
        uint8 fheType = uint8(handle[30]);
        if (fheType > LAST_FHE_TYPE) revert InvalidFHEType(fheType);
        if (fheType == 0) return 2;
        if (fheType >= 2 && fheType <= 6) return 4 << (fheType - 1);
        if (fheType == 7) return 160;
        if (fheType == 8) return 256;
        revert UnsupportedFHEType(fheType);
    }

    function totalBits(bytes32[] memory handles) internal pure {
        uint256 total;
        for (uint256 i = 0; i < handles.length; i++) total += bitsOf(handles[i]);
        if (total > MAX_BITS) revert MaxDecryptionRequestBitSizeExceeded(MAX_BITS, total);
    }

    function oneKey(SnsCiphertextMaterial[] memory materials) internal pure {
        for (uint256 i = 1; i < materials.length; i++) {
            if (materials[i].keyId != materials[0].keyId) revert DifferentKeyIdsNotAllowed(materials[0], materials[i]);
        }
    }

    /// @notice The KMS context that extra data names; 0 for "the current one".
    function contextOf(bytes memory extraData) internal pure returns (uint256 contextId) {
        uint8 version = extraData.length == 0 ? 0 : uint8(extraData[0]);
        if (version == 0) return 0;
        if (version > 2) revert UnsupportedExtraDataVersion(version);
        uint256 minimum = version == 1 ? 33 : 65;
        if (extraData.length < minimum) revert InvalidExtraDataLength(extraData.length, minimum);
        assembly ("memory-safe") {
            contextId := mload(add(extraData, 33))
        }
        if (contextId == 0) revert InvalidNullContextId();
    }

    function windowDays(RequestValidity calldata validity) internal view {
        if (validity.durationDays == 0) revert InvalidNullDurationDays();
        if (validity.durationDays > MAX_DAYS) revert MaxDurationDaysExceeded(MAX_DAYS, validity.durationDays);
        _started(validity.startTimestamp);
        if (validity.startTimestamp + validity.durationDays * 1 days < block.timestamp) {
            revert UserDecryptionRequestExpired(block.timestamp, validity);
        }
    }

    function windowSeconds(RequestValiditySeconds calldata validity) internal view {
        if (validity.durationSeconds == 0) revert InvalidNullDurationSeconds();
        if (validity.durationSeconds > MAX_SECONDS) {
            revert MaxDurationSecondsExceeded(MAX_SECONDS, validity.durationSeconds);
        }
        _started(validity.startTimestamp);
        if (validity.startTimestamp + validity.durationSeconds < block.timestamp) {
            revert UserDecryptionRequestExpiredSeconds(block.timestamp, validity);
        }
    }

    function contracts(address[] calldata addresses, bool mayBeEmpty) internal pure {
        if (addresses.length == 0 && !mayBeEmpty) revert EmptyContractAddresses();
        if (addresses.length > MAX_CONTRACTS) {
            revert ContractAddressesMaxLengthExceeded(MAX_CONTRACTS, addresses.length);
        }
    }

    function includes(address[] calldata addresses, address wanted) internal pure returns (bool) {
        for (uint256 i = 0; i < addresses.length; i++) {
            if (addresses[i] == wanted) return true;
        }
        return false;
    }

    /// @notice The handles of legacy pairs, after the rules for pairs: chain and contract covered by the signature.
    function pairHandles(
        CtHandleContractPair[] calldata pairs,
        ContractsInfo calldata info
    ) internal pure returns (bytes32[] memory handles) {
        if (pairs.length == 0) revert EmptyCtHandleContractPairs();
        handles = new bytes32[](pairs.length);
        for (uint256 i = 0; i < pairs.length; i++) {
            bytes32 handle = pairs[i].ctHandle;
            uint256 chainId = chainIdOf(handle);
            if (chainId != info.chainId) {
                revert CtHandleChainIdDiffersFromContractChainId(handle, chainId, info.chainId);
            }
            if (!includes(info.addresses, pairs[i].contractAddress)) {
                revert ContractNotInContractAddresses(pairs[i].contractAddress, info.addresses);
            }
            handles[i] = handle;
        }
    }

    /// @notice The handles of unified entries: one host chain, contracts covered unless none is named.
    function entryHandles(
        HandleEntry[] calldata entries,
        address[] calldata allowedContracts
    ) internal pure returns (bytes32[] memory handles) {
        if (entries.length == 0) revert EmptyHandles();
        uint256 firstChainId = chainIdOf(entries[0].handle);
        handles = new bytes32[](entries.length);
        for (uint256 i = 0; i < entries.length; i++) {
            bytes32 handle = entries[i].handle;
            uint256 chainId = chainIdOf(handle);
            if (chainId != firstChainId) {
                revert CtHandleChainIdDiffersFromContractChainId(handle, chainId, firstChainId);
            }
            if (allowedContracts.length != 0 && !includes(allowedContracts, entries[i].contractAddress)) {
                revert ContractNotInContractAddresses(entries[i].contractAddress, allowedContracts);
            }
            handles[i] = handle;
        }
    }

    function _started(uint256 startTimestamp) private view {
        if (startTimestamp > block.timestamp) revert StartTimestampInFuture(block.timestamp, startTimestamp);
    }
}
