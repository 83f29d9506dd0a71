// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {SignerRegistry} from "./SignerRegistry.sol";

/// @title Coprocessor signers that a host chain accepts for encrypted inputs.
contract InputVerifier is SignerRegistry {
    constructor(
        uint256 gatewayChainId,
        address inputVerification
    ) SignerRegistry("InputVerification", gatewayChainId, inputVerification) {}

    function getCoprocessorSigners() external view returns (address[] memory) {
        return _allSigners();
    }
}
