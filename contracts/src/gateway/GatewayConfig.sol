// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {GatewayOwned} from "./GatewayOwned.sol";
import {HostChainDisabled, HostChainNotRegistered} from "./GatewayErrors.sol";

/// @title Registry of KMS nodes, coprocessors, thresholds, KMS contexts and host chains.
/// @dev Nodes are numbered from 1 in registration order, so that a set of answers fits one bitmap word.
contract GatewayConfig is GatewayOwned {
    struct Node {
        address txSender;
        address signer;
    }

    struct HostChain {
        bool registered;
        bool disabled;
    }

    Node[] private _kmsNodes;
    Node[] private _coprocessors;
    mapping(address signer => uint256 number) public kmsSignerNumber;
    mapping(address txSender => uint256 number) public kmsTxSenderNumber;
    mapping(address signer => uint256 number) public coprocessorSignerNumber;
    mapping(address txSender => uint256 number) public coprocessorTxSenderNumber;
    mapping(uint256 contextId => bool valid) public isValidKmsContext;
    mapping(uint256 chainId => HostChain chain) private _hostChains;

    uint256 public publicDecryptionThreshold;
    uint256 public userDecryptionThreshold;
    uint256 public coprocessorThreshold;

    function addKmsNodes(Node[] calldata nodes) external onlyOwner {
        for (uint256 i = 0; i < nodes.length; i++) {
            _kmsNodes.push(nodes[i]);
            kmsSignerNumber[nodes[i].signer] = _kmsNodes.length;
            kmsTxSenderNumber[nodes[i].txSender] = _kmsNodes.length;
        }
    }

    function addCoprocessors(Node[] calldata nodes) external onlyOwner {
        for (uint256 i = 0; i < nodes.length; i++) {
            _coprocessors.push(nodes[i]);
            coprocessorSignerNumber[nodes[i].signer] = _coprocessors.length;
            coprocessorTxSenderNumber[nodes[i].txSender] = _coprocessors.length;
        }
    }

    function setThresholds(uint256 publicDecryption, uint256 userDecryption, uint256 coprocessor) external onlyOwner {
        publicDecryptionThreshold = publicDecryption;
        userDecryptionThreshold = userDecryption;
        coprocessorThreshold = coprocessor;
    }

    function setKmsContext(uint256 contextId, bool valid) external onlyOwner {
        isValidKmsContext[contextId] = valid;
    }

    function setHostChain(uint256 chainId, bool registered, bool disabled) external onlyOwner {
        _hostChains[chainId] = HostChain(registered, disabled);
    }

    /// @notice Reverts with `HostChainNotRegistered` or `HostChainDisabled` unless requests may use the chain.
    function checkHostChain(uint256 chainId) external view {
        HostChain memory chain = _hostChains[chainId];
        if (!chain.registered) revert HostChainNotRegistered(chainId);
        if (chain.disabled) revert HostChainDisabled(chainId);
    }

    function getKmsSigners() external view returns (address[] memory) {
        return _signers(_kmsNodes);
    }

    function getCoprocessorSigners() external view returns (address[] memory) {
        return _signers(_coprocessors);
    }

    function getCoprocessorTxSenders() external view returns (address[] memory senders) {
        senders = new address[](_coprocessors.length);
        for (uint256 i = 0; i < senders.length; i++) senders[i] = _coprocessors[i].txSender;
    }

    /// @notice Transaction senders of the KMS nodes whose bit (number - 1) is set in `bitmap`.
    function kmsTxSendersOf(uint256 bitmap) external view returns (address[] memory senders) {
        uint256 count;
        for (uint256 rest = bitmap; rest != 0; rest &= rest - 1) count++;
        senders = new address[](count);
        uint256 next;
        for (uint256 i = 0; i < _kmsNodes.length; i++) {
            if ((bitmap >> i) & 1 == 1) senders[next++] = _kmsNodes[i].txSender;
        }
    }

    function _signers(Node[] storage nodes) private view returns (address[] memory signers) {
        signers = new address[](nodes.length);
        for (uint256 i = 0; i < signers.length; i++) signers[i] = nodes[i].signer;
    }
}
