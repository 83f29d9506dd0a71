// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {DecryptionBase} from "./DecryptionBase.sol";
import {TypedSignatures} from "./TypedSignatures.sol";
import "./GatewayErrors.sol";
import "./GatewayTypes.sol";

/// @title The response side of `Decryption`: KMS answers one by one or in bulk.
/// @dev An answer after consensus does not revert. The index of a share is its order of arrival, not its node.
abstract contract DecryptionResponses is DecryptionBase {
    bytes32 private constant PUBLIC_TYPEHASH =
        keccak256("PublicDecryptVerification(bytes32[] ctHandles,bytes decryptedResult,bytes extraData)");
    bytes32 private constant SHARE_TYPEHASH =
        keccak256(
            "UserDecryptResponseVerification(bytes publicKey,bytes32[] ctHandles,bytes userDecryptedShare,bytes extraData)"
        );

    mapping(uint256 decryptionId => mapping(bytes32 digest => bytes[] signatures)) private _publicSignatures;

    /// @notice A member of a bulk answer that had no effect: unknown id, unknown signer, or answered already.
    event ResponseSkipped(uint256 indexed decryptionId, uint256 position);

    modifier onlyKmsTxSender() {
        if (config.kmsTxSenderNumber(msg.sender) == 0) revert NotKmsTxSender(msg.sender);
        _;
    }

    /// @notice One node's plaintexts. At the threshold of equal answers the response event is emitted.
    function publicDecryptionResponse(
        uint256 decryptionId,
        bytes calldata decryptedResult,
        bytes calldata signature,
        bytes calldata extraData
    ) external onlyKmsTxSender {
        Request storage request = _known(decryptionId, PUBLIC_BASE);
        bytes32 digest = _publicDigest(request, decryptedResult, extraData);
        _count(decryptionId, request, _senderOf(TypedSignatures.recover(digest, signature)));
        bytes[] storage signatures = _publicSignatures[decryptionId][digest];
        signatures.push(signature);
        if (request.done || signatures.length < config.publicDecryptionThreshold()) return;
        _close(request);
        emit PublicDecryptionResponse(decryptionId, decryptedResult, signatures, extraData);
    }

    /// @notice One node's share of a user decryption.
    function userDecryptionResponse(
        uint256 decryptionId,
        bytes calldata userDecryptedShare,
        bytes calldata signature,
        bytes calldata extraData
    ) external onlyKmsTxSender {
        Request storage request = _known(decryptionId, USER_BASE);
        bytes32 digest = _shareDigest(_domain(block.chainid), request, userDecryptedShare, extraData);
        uint256 number = _senderOf(TypedSignatures.recover(digest, signature));
        uint256 index = _popcount(request.answered);
        _count(decryptionId, request, number);
        emit UserDecryptionResponse(decryptionId, index, userDecryptedShare, signature, extraData);
        _reachThreshold(decryptionId, request, index + 1);
    }

    /// @notice Devnet: shares of many ids and nodes in one transaction, in the given order.
    function userDecryptionResponses(UserShareAnswer[] calldata answers) external onlyKmsTxSender {
        bytes32 domain = _domain(block.chainid);
        uint256 threshold = config.userDecryptionThreshold();
        for (uint256 i = 0; i < answers.length; i++) {
            if (!_shareInBulk(domain, threshold, answers[i])) emit ResponseSkipped(answers[i].decryptionId, i);
        }
    }

    /// @notice Devnet: whole public answers of many ids in one transaction.
    function publicDecryptionResponses(PublicAnswer[] calldata answers) external onlyKmsTxSender {
        uint256 threshold = config.publicDecryptionThreshold();
        for (uint256 i = 0; i < answers.length; i++) {
            if (!_publicInBulk(threshold, answers[i])) emit ResponseSkipped(answers[i].decryptionId, i);
        }
    }

    /// @notice Devnet: a share event without any check, for tests of foreign, corrupt and repeated shares.
    function emitUncheckedShare(
        uint256 decryptionId,
        uint256 indexShare,
        bytes calldata userDecryptedShare,
        bytes calldata signature,
        bytes calldata extraData
    ) external onlyKmsTxSender {
        emit UserDecryptionResponse(decryptionId, indexShare, userDecryptedShare, signature, extraData);
    }

    function _shareInBulk(bytes32 domain, uint256 threshold, UserShareAnswer calldata answer) private returns (bool) {
        Request storage request = _requests[answer.decryptionId];
        if (request.handlesHash == 0) return false;
        bytes32 digest = _shareDigest(domain, request, answer.userDecryptedShare, answer.extraData);
        uint256 number = config.kmsSignerNumber(TypedSignatures.tryRecover(digest, answer.signature));
        uint128 answered = request.answered;
        if (number == 0 || (answered >> (number - 1)) & 1 == 1) return false;
        uint256 index = _popcount(answered);
        request.answered = answered | uint128(1 << (number - 1));
        emit UserDecryptionResponse(
            answer.decryptionId,
            index,
            answer.userDecryptedShare,
            answer.signature,
            answer.extraData
        );
        if (index + 1 == threshold) _reachThreshold(answer.decryptionId, request, threshold);
        return true;
    }

    function _publicInBulk(uint256 threshold, PublicAnswer calldata answer) private returns (bool) {
        Request storage request = _requests[answer.decryptionId];
        if (request.handlesHash == 0 || request.done) return false;
        bytes32 digest = _publicDigest(request, answer.decryptedResult, answer.extraData);
        uint256 answered;
        for (uint256 i = 0; i < answer.signatures.length; i++) {
            uint256 number = config.kmsSignerNumber(TypedSignatures.tryRecover(digest, answer.signatures[i]));
            if (number == 0) return false;
            answered |= 1 << (number - 1);
        }
        if (_popcount(answered) < threshold || _popcount(answered) != answer.signatures.length) return false;
        request.answered = uint128(answered);
        _close(request);
        emit PublicDecryptionResponse(
            answer.decryptionId,
            answer.decryptedResult,
            answer.signatures,
            answer.extraData
        );
        return true;
    }

    function _known(uint256 decryptionId, uint256 base) private view returns (Request storage request) {
        request = _requests[decryptionId];
        if (request.handlesHash == 0 || decryptionId >> 248 != base >> 248) {
            revert DecryptionNotRequested(decryptionId);
        }
    }

    /// @dev The number of the node that signed; the sender must be the same node.
    function _senderOf(address signer) private view returns (uint256 number) {
        number = config.kmsSignerNumber(signer);
        if (number == 0) revert NotKmsSigner(signer);
        if (config.kmsTxSenderNumber(msg.sender) != number) {
            revert KmsSignerDoesNotMatchTxSender(signer, msg.sender);
        }
    }

    function _count(uint256 decryptionId, Request storage request, uint256 number) private {
        uint128 bit = uint128(1 << (number - 1));
        if (request.answered & bit != 0) {
            revert KmsNodeAlreadySigned(decryptionId, config.getKmsSigners()[number - 1]);
        }
        request.answered |= bit;
    }

    function _reachThreshold(uint256 decryptionId, Request storage request, uint256 count) private {
        if (request.done || count < config.userDecryptionThreshold()) return;
        _close(request);
        emit UserDecryptionResponseThresholdReached(decryptionId);
    }

    function _close(Request storage request) private {
        request.done = true;
        request.consensus = uint120(request.answered);
    }

    function _publicDigest(
        Request storage request,
        bytes calldata decryptedResult,
        bytes calldata extraData
    ) private view returns (bytes32) {
        bytes32 structHash = keccak256(
            abi.encode(PUBLIC_TYPEHASH, request.handlesHash, keccak256(decryptedResult), keccak256(extraData))
        );
        return TypedSignatures.digest(_domain(block.chainid), structHash);
    }

    function _shareDigest(
        bytes32 domain,
        Request storage request,
        bytes calldata share,
        bytes calldata extraData
    ) private view returns (bytes32) {
        bytes32 structHash = keccak256(
            abi.encode(
                SHARE_TYPEHASH,
                request.publicKeyHash,
                request.handlesHash,
                keccak256(share),
                keccak256(extraData)
            )
        );
        return TypedSignatures.digest(domain, structHash);
    }

    function _popcount(uint256 bits) private pure returns (uint256 count) {
        for (; bits != 0; bits &= bits - 1) count++;
    }
}
