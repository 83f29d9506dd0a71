// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {ECDSAInvalidSignature, ECDSAInvalidSignatureLength, ECDSAInvalidSignatureS} from "./GatewayErrors.sol";

/// @title EIP-712 hashing (domain with name, version, chain id, contract) and strict ECDSA recovery.
library TypedSignatures {
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant VERSION_HASH = keccak256("1");
    /// @dev Half of the secp256k1 order; a larger s is the malleable twin of a signature (EIP-2).
    uint256 private constant HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0;

    function separator(bytes32 nameHash, uint256 chainId, address verifyingContract) internal pure returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPEHASH, nameHash, VERSION_HASH, chainId, verifyingContract));
    }

    function digest(bytes32 domainSeparator, bytes32 structHash) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(hex"1901", domainSeparator, structHash));
    }

    /// @notice The signer of a 65-byte signature (r, s, v). Reverts with the ECDSA errors of OpenZeppelin.
    function recover(bytes32 hash, bytes memory signature) internal pure returns (address signer) {
        if (signature.length != 65) revert ECDSAInvalidSignatureLength(signature.length);
        bytes32 s = _word(signature, 64);
        if (uint256(s) > HALF_ORDER) revert ECDSAInvalidSignatureS(s);
        signer = _ecrecover(hash, signature, s);
        if (signer == address(0)) revert ECDSAInvalidSignature();
    }

    /// @notice As `recover`, with the zero address instead of a revert.
    function tryRecover(bytes32 hash, bytes memory signature) internal pure returns (address) {
        if (signature.length != 65) return address(0);
        bytes32 s = _word(signature, 64);
        return uint256(s) > HALF_ORDER ? address(0) : _ecrecover(hash, signature, s);
    }

    function _ecrecover(bytes32 hash, bytes memory signature, bytes32 s) private pure returns (address) {
        return ecrecover(hash, uint8(signature[64]), _word(signature, 32), s);
    }

    /// @dev The 32 bytes that end at byte `end` of `data`; the length word makes offset and end equal.
    function _word(bytes memory data, uint256 end) private pure returns (bytes32 value) {
        assembly ("memory-safe") {
            value := mload(add(data, end))
        }
    }
}
