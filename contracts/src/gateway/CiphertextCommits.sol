// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {GatewayOwned} from "./GatewayOwned.sol";
import {GatewayConfig} from "./GatewayConfig.sol";
import {CiphertextMaterialNotFound, NotCoprocessorTxSender} from "./GatewayErrors.sol";
import {SnsCiphertextMaterial} from "./GatewayTypes.sol";

/// @title Which ciphertexts the coprocessors have committed, and under which FHE key.
/// @dev Devnet: a coprocessor or a registered committer commits alone, without consensus; `defaultKeyId` makes every
/// handle count as committed.
contract CiphertextCommits is GatewayOwned {
    GatewayConfig public immutable config;
    mapping(bytes32 ctHandle => uint256 keyId) public keyIdOf;
    mapping(address sender => bool allowed) public isCommitter;
    uint256 public defaultKeyId;

    event AddCiphertextMaterial(bytes32 indexed ctHandle, uint256 keyId);

    constructor(GatewayConfig config_) {
        config = config_;
    }

    /// @notice Commit (key id > 0) or withdraw (0) ciphertexts.
    function setCiphertextMaterials(bytes32[] calldata ctHandles, uint256 keyId) external {
        if (!isCommitter[msg.sender] && config.coprocessorTxSenderNumber(msg.sender) == 0) {
            revert NotCoprocessorTxSender(msg.sender);
        }
        for (uint256 i = 0; i < ctHandles.length; i++) {
            keyIdOf[ctHandles[i]] = keyId;
            emit AddCiphertextMaterial(ctHandles[i], keyId);
        }
    }

    function setCommitter(address sender, bool allowed) external onlyOwner {
        isCommitter[sender] = allowed;
    }

    /// @notice Treat every handle without its own entry as committed under `keyId`; 0 ends that.
    function setDefaultKeyId(uint256 keyId) external onlyOwner {
        defaultKeyId = keyId;
    }

    function isCiphertextMaterialAdded(bytes32 ctHandle) public view returns (bool) {
        return _keyId(ctHandle) != 0;
    }

    /// @notice The materials of all handles. Reverts with `CiphertextMaterialNotFound` for one not committed.
    function getSnsCiphertextMaterials(
        bytes32[] calldata ctHandles
    ) external view returns (SnsCiphertextMaterial[] memory materials) {
        address[] memory senders = config.getCoprocessorTxSenders();
        materials = new SnsCiphertextMaterial[](ctHandles.length);
        for (uint256 i = 0; i < ctHandles.length; i++) {
            uint256 keyId = _keyId(ctHandles[i]);
            if (keyId == 0) revert CiphertextMaterialNotFound(ctHandles[i]);
            bytes32 digest = keccak256(abi.encodePacked("sns-ciphertext", ctHandles[i]));
            materials[i] = SnsCiphertextMaterial(ctHandles[i], keyId, digest, senders);
        }
    }

    function _keyId(bytes32 ctHandle) private view returns (uint256 keyId) {
        keyId = keyIdOf[ctHandle];
        if (keyId == 0) keyId = defaultKeyId;
    }
}
