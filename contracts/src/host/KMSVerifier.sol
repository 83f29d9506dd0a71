// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {SignerRegistry} from "./SignerRegistry.sol";

/// @title KMS signers that a host chain accepts for decryptions.
contract KMSVerifier is SignerRegistry {
    constructor(
        uint256 gatewayChainId,
        address decryption
    ) SignerRegistry("Decryption", gatewayChainId, decryption) {}

    function getKmsSigners() external view returns (address[] memory) {
        return _allSigners();
    }
}
