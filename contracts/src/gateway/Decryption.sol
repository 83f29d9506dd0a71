// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {CiphertextCommits} from "./CiphertextCommits.sol";
import {DecryptionBase} from "./DecryptionBase.sol";
import {DecryptionRequests} from "./DecryptionRequests.sol";
import {DecryptionResponses} from "./DecryptionResponses.sol";
import {GatewayConfig} from "./GatewayConfig.sol";
import {ProtocolPayment} from "./ProtocolPayment.sol";
import "./GatewayTypes.sol";

/// @title Decryption requests and their answers on the gateway chain.
/// @notice Public ids count up from 1 << 248, user ids from 2 << 248.
contract Decryption is DecryptionRequests, DecryptionResponses {
    constructor(
        GatewayConfig config_,
        CiphertextCommits commits_,
        ProtocolPayment payment_
    ) DecryptionBase(config_, commits_, payment_) {}

    /// @notice Whether every handle's ciphertext is committed, so that a public request would be accepted.
    function isPublicDecryptionReady(bytes32[] calldata ctHandles, bytes calldata) external view returns (bool) {
        if (ctHandles.length == 0) return false;
        for (uint256 i = 0; i < ctHandles.length; i++) {
            if (!commits.isCiphertextMaterialAdded(ctHandles[i])) return false;
        }
        return true;
    }

    function isUserDecryptionReady(
        CtHandleContractPair[] calldata ctHandleContractPairs,
        bytes calldata
    ) external view returns (bool) {
        return _pairsReady(ctHandleContractPairs);
    }

    /// @dev Older form that also named the user.
    function isUserDecryptionReady(
        address,
        CtHandleContractPair[] calldata ctHandleContractPairs,
        bytes calldata
    ) external view returns (bool) {
        return _pairsReady(ctHandleContractPairs);
    }

    function isUserDecryptionReady(HandleEntry[] calldata handles, bytes calldata) external view returns (bool) {
        if (handles.length == 0) return false;
        for (uint256 i = 0; i < handles.length; i++) {
            if (!commits.isCiphertextMaterialAdded(handles[i].handle)) return false;
        }
        return true;
    }

    function isDelegatedUserDecryptionReady(
        CtHandleContractPair[] calldata ctHandleContractPairs,
        bytes calldata
    ) external view returns (bool) {
        return _pairsReady(ctHandleContractPairs);
    }

    /// @notice Whether consensus was reached for this id. False for an id that was never requested.
    function isDecryptionDone(uint256 decryptionId) external view returns (bool) {
        return _requests[decryptionId].done;
    }

    /// @notice Transaction senders of the nodes that made consensus; empty before it.
    function getDecryptionConsensusTxSenders(uint256 decryptionId) external view returns (address[] memory) {
        return config.kmsTxSendersOf(_requests[decryptionId].consensus);
    }

    function _pairsReady(CtHandleContractPair[] calldata pairs) private view returns (bool) {
        if (pairs.length == 0) return false;
        for (uint256 i = 0; i < pairs.length; i++) {
            if (!commits.isCiphertextMaterialAdded(pairs[i].ctHandle)) return false;
        }
        return true;
    }
}
