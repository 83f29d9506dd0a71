// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {GatewayConfig} from "./GatewayConfig.sol";
import {GatewayOwned} from "./GatewayOwned.sol";
import {ProtocolPayment} from "./ProtocolPayment.sol";
import {RequestChecks} from "./RequestChecks.sol";
import {TypedSignatures} from "./TypedSignatures.sol";
import "./GatewayErrors.sol";
import {ProofAnswer} from "./GatewayTypes.sol";

/// @title Verification of encrypted inputs by the coprocessors. Proof ids count from 1.
contract InputVerification is GatewayOwned {
    bytes32 private constant NAME_HASH = keccak256("InputVerification");
    bytes32 private constant CIPHERTEXT_TYPEHASH =
        keccak256(
            "CiphertextVerification(bytes32[] ctHandles,address userAddress,address contractAddress,uint256 contractChainId,bytes extraData)"
        );

    struct Proof {
        uint256 contractChainId;
        address contractAddress;
        address userAddress;
        uint32 answered;
        uint32 rejections;
        bool verified;
        bool rejected;
    }

    GatewayConfig public immutable config;
    ProtocolPayment public immutable payment;
    uint256 private _counter;
    mapping(uint256 zkProofId => Proof proof) private _proofs;
    mapping(uint256 zkProofId => mapping(bytes32 digest => bytes[] signatures)) private _signatures;

    event VerifyProofRequest(
        uint256 indexed zkProofId,
        uint256 indexed contractChainId,
        address contractAddress,
        address userAddress,
        bytes ciphertextWithZKProof,
        bytes extraData
    );
    event VerifyProofResponse(uint256 indexed zkProofId, bytes32[] ctHandles, bytes[] signatures);
    event RejectProofResponse(uint256 indexed zkProofId);
    /// @notice A member of a bulk answer that had no effect.
    event ResponseSkipped(uint256 indexed zkProofId, uint256 position);

    constructor(GatewayConfig config_, ProtocolPayment payment_) {
        config = config_;
        payment = payment_;
    }

    modifier onlyCoprocessor() {
        if (config.coprocessorTxSenderNumber(msg.sender) == 0) revert NotCoprocessorTxSender(msg.sender);
        _;
    }

    /// @notice ERC-5267 description of the domain that coprocessors sign under.
    function eip712Domain()
        external
        view
        returns (bytes1, string memory, string memory, uint256, address, bytes32, uint256[] memory)
    {
        return (hex"0f", "InputVerification", "1", block.chainid, address(this), bytes32(0), new uint256[](0));
    }

    /// @notice Ask the coprocessors to check a proof; takes the fee and opens a new id.
    function verifyProofRequest(
        uint256 contractChainId,
        address contractAddress,
        address userAddress,
        bytes calldata ciphertextWithZKProof,
        bytes calldata extraData
    ) external whenNotPaused {
        config.checkHostChain(contractChainId);
        RequestChecks.contextOf(extraData);
        payment.collectInputVerificationFee(msg.sender);
        uint256 id = ++_counter;
        Proof storage proof = _proofs[id];
        (proof.contractChainId, proof.contractAddress) = (contractChainId, contractAddress);
        proof.userAddress = userAddress;
        emit VerifyProofRequest(
            id,
            contractChainId,
            contractAddress,
            userAddress,
            ciphertextWithZKProof,
            extraData
        );
    }

    /// @notice One coprocessor's handles. At the threshold of equal answers the response event is emitted.
    function verifyProofResponse(
        uint256 zkProofId,
        bytes32[] calldata ctHandles,
        bytes calldata signature,
        bytes calldata extraData
    ) external onlyCoprocessor {
        Proof storage proof = _known(zkProofId);
        bytes32 digest = _digest(proof, ctHandles, extraData);
        address signer = TypedSignatures.recover(digest, signature);
        uint256 number = config.coprocessorSignerNumber(signer);
        if (number == 0) revert NotCoprocessorSigner(signer);
        if (number != config.coprocessorTxSenderNumber(msg.sender)) {
            revert CoprocessorSignerDoesNotMatchTxSender(signer, msg.sender);
        }
        if (_mark(proof, number)) revert CoprocessorAlreadyVerified(zkProofId, msg.sender, signer);
        bytes[] storage signatures = _signatures[zkProofId][digest];
        signatures.push(signature);
        if (_final(proof) || signatures.length < config.coprocessorThreshold()) return;
        proof.verified = true;
        emit VerifyProofResponse(zkProofId, ctHandles, signatures);
    }

    /// @notice One coprocessor's refusal. At the threshold the reject event is emitted.
    function rejectProofResponse(uint256 zkProofId, bytes calldata) external onlyCoprocessor {
        Proof storage proof = _known(zkProofId);
        if (_mark(proof, config.coprocessorTxSenderNumber(msg.sender))) {
            revert CoprocessorAlreadyRejected(zkProofId, msg.sender, msg.sender);
        }
        proof.rejections++;
        if (_final(proof) || proof.rejections < config.coprocessorThreshold()) return;
        proof.rejected = true;
        emit RejectProofResponse(zkProofId);
    }

    /// @notice Devnet: whole answers of many proofs in one transaction.
    function verifyProofResponses(ProofAnswer[] calldata answers) external onlyCoprocessor {
        uint256 threshold = config.coprocessorThreshold();
        for (uint256 i = 0; i < answers.length; i++) {
            if (!_inBulk(threshold, answers[i])) emit ResponseSkipped(answers[i].zkProofId, i);
        }
    }

    function isProofVerified(uint256 zkProofId) external view returns (bool) {
        return _proofs[zkProofId].verified;
    }

    function isProofRejected(uint256 zkProofId) external view returns (bool) {
        return _proofs[zkProofId].rejected;
    }

    function _inBulk(uint256 threshold, ProofAnswer calldata answer) private returns (bool) {
        Proof storage proof = _proofs[answer.zkProofId];
        if (proof.contractChainId == 0 || _final(proof)) return false;
        bytes32 digest = _digest(proof, answer.ctHandles, answer.extraData);
        uint256 answered;
        for (uint256 i = 0; i < answer.signatures.length; i++) {
            uint256 number = config.coprocessorSignerNumber(TypedSignatures.tryRecover(digest, answer.signatures[i]));
            if (number == 0 || (answered >> (number - 1)) & 1 == 1) return false;
            answered |= 1 << (number - 1);
        }
        if (answer.signatures.length < threshold) return false;
        proof.answered = uint32(answered);
        proof.verified = true;
        emit VerifyProofResponse(answer.zkProofId, answer.ctHandles, answer.signatures);
        return true;
    }

    function _known(uint256 zkProofId) private view returns (Proof storage proof) {
        proof = _proofs[zkProofId];
        if (proof.contractChainId == 0) revert VerifyProofNotRequested(zkProofId);
    }

    function _final(Proof storage proof) private view returns (bool) {
        return proof.verified || proof.rejected;
    }

    /// @dev Sets the coprocessor's bit; true when it was set before.
    function _mark(Proof storage proof, uint256 number) private returns (bool before) {
        uint32 bit = uint32(1 << (number - 1));
        before = proof.answered & bit != 0;
        proof.answered |= bit;
    }

    function _digest(
        Proof storage proof,
        bytes32[] calldata ctHandles,
        bytes calldata extraData
    ) private view returns (bytes32) {
        bytes32 structHash = keccak256(
            abi.encode(
                CIPHERTEXT_TYPEHASH,
                keccak256(abi.encodePacked(ctHandles)),
                proof.userAddress,
                proof.contractAddress,
                proof.contractChainId,
                keccak256(extraData)
            )
        );
        bytes32 domain = TypedSignatures.separator(NAME_HASH, block.chainid, address(this));
        return TypedSignatures.digest(domain, structHash);
    }
}
