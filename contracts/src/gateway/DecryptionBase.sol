// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {CiphertextCommits} from "./CiphertextCommits.sol";
import {GatewayConfig} from "./GatewayConfig.sol";
import {GatewayOwned} from "./GatewayOwned.sol";
import {ProtocolPayment} from "./ProtocolPayment.sol";
import {TypedSignatures} from "./TypedSignatures.sol";
import "./GatewayTypes.sol";

/// @title State and events that requests and responses of `Decryption` share.
abstract contract DecryptionBase is GatewayOwned {
    bytes32 internal constant NAME_HASH = keccak256("Decryption");
    uint256 internal constant PUBLIC_BASE = 1 << 248;
    uint256 internal constant USER_BASE = 2 << 248;

    /// @dev Hashes stand for the handles and the key: signatures cover exactly these hashes, and two words
    /// are cheaper to keep than a kilobyte. `answered` has one bit a KMS node, `consensus` its value at the threshold.
    struct Request {
        bytes32 handlesHash;
        bytes32 publicKeyHash;
        uint128 answered;
        uint120 consensus;
        bool done;
    }

    GatewayConfig public immutable config;
    CiphertextCommits public immutable commits;
    ProtocolPayment public immutable payment;

    uint256 internal _publicCounter = PUBLIC_BASE;
    uint256 internal _userCounter = USER_BASE;
    mapping(uint256 decryptionId => Request request) internal _requests;

    event PublicDecryptionRequest(
        uint256 indexed decryptionId,
        SnsCiphertextMaterial[] snsCtMaterials,
        bytes extraData
    );
    event PublicDecryptionRequest(uint256 indexed decryptionId, bytes32[] ctHandles, bytes extraData);
    event UserDecryptionRequest(
        uint256 indexed decryptionId,
        SnsCiphertextMaterial[] snsCtMaterials,
        address userAddress,
        bytes publicKey,
        bytes extraData
    );
    event UserDecryptionRequest(
        uint256 indexed decryptionId,
        bytes32[] ctHandles,
        address userAddress,
        bytes publicKey,
        bytes extraData
    );
    event UserDecryptionRequest(
        uint256 indexed decryptionId,
        SnsCiphertextMaterial[] snsCtMaterials,
        HandleEntry[] handles,
        UnifiedUserDecryptionPayload payload
    );
    event UserDecryptionRequest(
        uint256 indexed decryptionId,
        HandleEntry[] handles,
        UnifiedUserDecryptionPayload payload
    );
    event PublicDecryptionResponse(
        uint256 indexed decryptionId,
        bytes decryptedResult,
        bytes[] signatures,
        bytes extraData
    );
    event UserDecryptionResponse(
        uint256 indexed decryptionId,
        uint256 indexShare,
        bytes userDecryptedShare,
        bytes signature,
        bytes extraData
    );
    event UserDecryptionResponseThresholdReached(uint256 indexed decryptionId);

    constructor(GatewayConfig config_, CiphertextCommits commits_, ProtocolPayment payment_) {
        config = config_;
        commits = commits_;
        payment = payment_;
    }

    /// @notice ERC-5267 description of the domain that KMS nodes sign under.
    function eip712Domain()
        external
        view
        returns (bytes1, string memory, string memory, uint256, address, bytes32, uint256[] memory)
    {
        return (hex"0f", "Decryption", "1", block.chainid, address(this), bytes32(0), new uint256[](0));
    }

    /// @dev Users sign under the host chain's id, KMS nodes under the gateway's; the contract is the same.
    function _domain(uint256 chainId) internal view returns (bytes32) {
        return TypedSignatures.separator(NAME_HASH, chainId, address(this));
    }
}
