// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

/// @dev Node of a KMS context, with what a reader needs to fetch its public material.
struct KmsNodeParams {
    address txSenderAddress;
    address signerAddress;
    string ipAddress;
    string storageUrl;
    int32 partyId;
    string mpcIdentity;
    bytes caCert;
    string storagePrefix;
}

struct KmsThresholds {
    uint256 publicDecryption;
    uint256 userDecryption;
    uint256 kmsGen;
    uint256 mpc;
}

/// @dev Accepted enclave measurements.
struct PcrValues {
    bytes pcr0;
    bytes pcr1;
    bytes pcr2;
}

/// @title KMS contexts: nodes and thresholds. Context ids are tagged 0x07, epoch ids 0x08, in their first byte.
contract ProtocolConfig {
    error InvalidKmsContext(uint256 kmsContextId);
    error NotHostOwner(address sender);

    uint256 private constant CONTEXT_BASE = 7 << 248;
    uint256 private constant EPOCH_BASE = 8 << 248;

    struct Context {
        uint256 emissionBlockNumber;
        bytes32 infoHash;
        KmsThresholds thresholds;
        address[] signers;
    }

    address public immutable owner;
    uint256 private _count;
    mapping(uint256 contextId => Context context) private _contexts;

    event NewKmsContext(
        uint256 indexed contextId,
        uint256 indexed previousContextId,
        KmsNodeParams[] kmsNodeParams,
        KmsThresholds thresholds,
        string softwareVersion,
        PcrValues[] pcrValues
    );

    constructor() {
        owner = msg.sender;
    }

    /// @notice Start a new context (and its epoch) and make it the current one.
    function defineNewKmsContext(
        KmsNodeParams[] calldata nodes,
        KmsThresholds calldata thresholds,
        string calldata softwareVersion,
        PcrValues[] calldata pcrValues
    ) external {
        if (msg.sender != owner) revert NotHostOwner(msg.sender);
        uint256 previous = _count == 0 ? 0 : CONTEXT_BASE + _count;
        uint256 contextId = CONTEXT_BASE + ++_count;
        Context storage context = _contexts[contextId];
        context.emissionBlockNumber = block.number;
        context.infoHash = keccak256(abi.encode(nodes, thresholds, softwareVersion, pcrValues));
        context.thresholds = thresholds;
        for (uint256 i = 0; i < nodes.length; i++) context.signers.push(nodes[i].signerAddress);
        emit NewKmsContext(contextId, previous, nodes, thresholds, softwareVersion, pcrValues);
    }

    function getCurrentKmsContextId() external view returns (uint256) {
        return CONTEXT_BASE + _count;
    }

    function getCurrentKmsContextAndEpoch() external view returns (uint256 contextId, uint256 epochId) {
        return (CONTEXT_BASE + _count, EPOCH_BASE + _count);
    }

    /// @notice Block that emitted `NewKmsContext` for the context, and the hash of what it emitted.
    function getKmsContextAnchor(
        uint256 contextId
    ) external view returns (uint256 emissionBlockNumber, bytes32 contextInfoHash) {
        Context storage context = _known(contextId);
        return (context.emissionBlockNumber, context.infoHash);
    }

    function isValidKmsContext(uint256 contextId) external view returns (bool) {
        return _contexts[contextId].emissionBlockNumber != 0;
    }

    function getUserDecryptionThresholdForContext(uint256 contextId) external view returns (uint256) {
        return _known(contextId).thresholds.userDecryption;
    }

    function getPublicDecryptionThresholdForContext(uint256 contextId) external view returns (uint256) {
        return _known(contextId).thresholds.publicDecryption;
    }

    function getKmsSignersForContext(uint256 contextId) external view returns (address[] memory) {
        return _known(contextId).signers;
    }

    function _known(uint256 contextId) private view returns (Context storage context) {
        context = _contexts[contextId];
        if (context.emissionBlockNumber == 0) revert InvalidKmsContext(contextId);
    }
}
