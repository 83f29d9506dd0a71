// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {DecryptionBase} from "./DecryptionBase.sol";
import {RequestChecks} from "./RequestChecks.sol";
import {TypedSignatures} from "./TypedSignatures.sol";
import "./GatewayErrors.sol";
import "./GatewayTypes.sol";

/// @title The request side of `Decryption`: four entry points, each takes a fee and opens a new id.
/// @dev No replay protection: the same call twice opens two ids and costs two fees.
abstract contract DecryptionRequests is DecryptionBase {
    bytes32 private constant DIRECT_TYPEHASH =
        keccak256(
            "UserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,uint256 startTimestamp,uint256 durationDays,bytes extraData)"
        );
    bytes32 private constant DELEGATED_TYPEHASH =
        keccak256(
            "DelegatedUserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,address delegatorAddress,uint256 startTimestamp,uint256 durationDays,bytes extraData)"
        );
    bytes32 private constant UNIFIED_TYPEHASH =
        keccak256(
            "UserDecryptRequestVerification(address userAddress,bytes publicKey,address[] allowedContracts,uint256 startTimestamp,uint256 durationSeconds,bytes extraData)"
        );

    /// @notice Users of unified requests that are contracts on their host chain. This chain cannot ask them
    /// (ERC-1271), so their signatures are left to the KMS nodes.
    mapping(address user => bool isWallet) public isContractWallet;

    function setContractWallet(address user, bool isWallet) external onlyOwner {
        isContractWallet[user] = isWallet;
    }

    /// @notice Ask the KMS to publish the plaintexts of `ctHandles`.
    function publicDecryptionRequest(bytes32[] calldata ctHandles, bytes calldata extraData) external whenNotPaused {
        if (ctHandles.length == 0) revert EmptyCtHandles();
        for (uint256 i = 0; i < ctHandles.length; i++) config.checkHostChain(RequestChecks.chainIdOf(ctHandles[i]));
        SnsCiphertextMaterial[] memory materials = _materials(ctHandles, extraData);
        payment.collectPublicDecryptionFee(msg.sender);
        uint256 id = ++_publicCounter;
        _requests[id].handlesHash = keccak256(abi.encodePacked(ctHandles));
        emit PublicDecryptionRequest(id, materials, extraData);
        emit PublicDecryptionRequest(id, ctHandles, extraData);
    }

    /// @notice Legacy direct form: the owner signs for a list of contracts and a number of days.
    function userDecryptionRequest(
        CtHandleContractPair[] calldata ctHandleContractPairs,
        RequestValidity calldata requestValidity,
        ContractsInfo calldata contractsInfo,
        address userAddress,
        bytes calldata publicKey,
        bytes calldata signature,
        bytes calldata extraData
    ) external whenNotPaused {
        _checkLegacy(requestValidity, contractsInfo);
        if (RequestChecks.includes(contractsInfo.addresses, userAddress)) {
            revert UserAddressInContractAddresses(userAddress, contractsInfo.addresses);
        }
        bytes32 structHash = keccak256(
            abi.encode(
                DIRECT_TYPEHASH,
                keccak256(publicKey),
                keccak256(abi.encodePacked(contractsInfo.addresses)),
                requestValidity.startTimestamp,
                requestValidity.durationDays,
                keccak256(extraData)
            )
        );
        _checkSigner(contractsInfo.chainId, structHash, signature, userAddress);
        bytes32[] memory handles = RequestChecks.pairHandles(ctHandleContractPairs, contractsInfo);
        _openLegacy(handles, userAddress, publicKey, extraData);
    }

    /// @notice Legacy delegated form: the delegate signs; the delegator owns the ciphertexts.
    function delegatedUserDecryptionRequest(
        CtHandleContractPair[] calldata ctHandleContractPairs,
        RequestValidity calldata requestValidity,
        DelegationAccounts calldata delegationAccounts,
        ContractsInfo calldata contractsInfo,
        bytes calldata publicKey,
        bytes calldata signature,
        bytes calldata extraData
    ) external whenNotPaused {
        _checkLegacy(requestValidity, contractsInfo);
        address delegator = delegationAccounts.delegatorAddress;
        if (RequestChecks.includes(contractsInfo.addresses, delegator)) {
            revert DelegatorAddressInContractAddresses(delegator, contractsInfo.addresses);
        }
        bytes32 structHash = keccak256(
            abi.encode(
                DELEGATED_TYPEHASH,
                keccak256(publicKey),
                keccak256(abi.encodePacked(contractsInfo.addresses)),
                delegator,
                requestValidity.startTimestamp,
                requestValidity.durationDays,
                keccak256(extraData)
            )
        );
        _checkSigner(contractsInfo.chainId, structHash, signature, delegationAccounts.delegateAddress);
        bytes32[] memory handles = RequestChecks.pairHandles(ctHandleContractPairs, contractsInfo);
        _openLegacy(handles, delegationAccounts.delegateAddress, publicKey, extraData);
    }

    /// @notice Unified form: handles and owners are not signed; the window is in seconds.
    function userDecryptionRequest(
        HandleEntry[] calldata handles,
        address userAddress,
        bytes calldata publicKey,
        address[] calldata allowedContracts,
        RequestValiditySeconds calldata requestValidity,
        bytes calldata signature,
        bytes calldata extraData
    ) external whenNotPaused {
        RequestChecks.contracts(allowedContracts, true);
        RequestChecks.windowSeconds(requestValidity);
        if (RequestChecks.includes(allowedContracts, userAddress)) {
            revert UserAddressInContractAddresses(userAddress, allowedContracts);
        }
        UnifiedUserDecryptionPayload memory payload = UnifiedUserDecryptionPayload(
            userAddress,
            publicKey,
            allowedContracts,
            requestValidity,
            signature,
            extraData
        );
        bytes32[] memory ctHandles = RequestChecks.entryHandles(handles, allowedContracts);
        _checkUnified(RequestChecks.chainIdOf(ctHandles[0]), payload);
        _openUnified(handles, ctHandles, payload);
    }

    function _checkLegacy(RequestValidity calldata validity, ContractsInfo calldata info) private view {
        config.checkHostChain(info.chainId);
        RequestChecks.contracts(info.addresses, false);
        RequestChecks.windowDays(validity);
    }

    function _checkUnified(uint256 chainId, UnifiedUserDecryptionPayload memory payload) private view {
        config.checkHostChain(chainId);
        if (isContractWallet[payload.userAddress]) return;
        bytes32 structHash = keccak256(
            abi.encode(
                UNIFIED_TYPEHASH,
                payload.userAddress,
                keccak256(payload.publicKey),
                keccak256(abi.encodePacked(payload.allowedContracts)),
                payload.requestValidity.startTimestamp,
                payload.requestValidity.durationSeconds,
                keccak256(payload.extraData)
            )
        );
        _checkSigner(chainId, structHash, payload.signature, payload.userAddress);
    }

    function _checkSigner(uint256 chainId, bytes32 structHash, bytes memory signature, address expected) private view {
        address signer = TypedSignatures.recover(TypedSignatures.digest(_domain(chainId), structHash), signature);
        if (signer != expected) revert InvalidUserSignature(signature);
    }

    function _openLegacy(
        bytes32[] memory handles,
        address user,
        bytes calldata publicKey,
        bytes calldata extraData
    ) private {
        SnsCiphertextMaterial[] memory materials = _materials(handles, extraData);
        uint256 id = _openUser(handles, publicKey);
        emit UserDecryptionRequest(id, materials, user, publicKey, extraData);
        emit UserDecryptionRequest(id, handles, user, publicKey, extraData);
    }

    function _openUnified(
        HandleEntry[] calldata entries,
        bytes32[] memory ctHandles,
        UnifiedUserDecryptionPayload memory payload
    ) private {
        SnsCiphertextMaterial[] memory materials = _materials(ctHandles, payload.extraData);
        uint256 id = _openUser(ctHandles, payload.publicKey);
        emit UserDecryptionRequest(id, materials, entries, payload);
        emit UserDecryptionRequest(id, entries, payload);
    }

    function _openUser(bytes32[] memory handles, bytes memory publicKey) private returns (uint256 id) {
        payment.collectUserDecryptionFee(msg.sender);
        id = ++_userCounter;
        _requests[id].handlesHash = keccak256(abi.encodePacked(handles));
        _requests[id].publicKeyHash = keccak256(publicKey);
    }

    function _materials(
        bytes32[] memory handles,
        bytes memory extraData
    ) private view returns (SnsCiphertextMaterial[] memory materials) {
        uint256 contextId = RequestChecks.contextOf(extraData);
        if (contextId != 0 && !config.isValidKmsContext(contextId)) revert InvalidKmsContext(contextId);
        RequestChecks.totalBits(handles);
        materials = commits.getSnsCiphertextMaterials(handles);
        RequestChecks.oneKey(materials);
    }
}
