// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {RequestValidity, RequestValiditySeconds, SnsCiphertextMaterial} from "./GatewayTypes.sol";

// Custom errors of the gateway. Clients read their selectors, so names and parameters are interface.

// Switches and registries
error EnforcedPause();
error ExpectedPause();
error NotGatewayOwner(address sender);
error NotKmsTxSender(address txSenderAddress);
error NotKmsSigner(address signerAddress);
error KmsSignerDoesNotMatchTxSender(address signerAddress, address txSenderAddress);
error NotCoprocessorTxSender(address txSenderAddress);
error NotCoprocessorSigner(address signerAddress);
error CoprocessorSignerDoesNotMatchTxSender(address signerAddress, address txSenderAddress);
error HostChainNotRegistered(uint256 chainId);
error HostChainDisabled(uint256 chainId);
error InvalidKmsContext(uint256 kmsContextId);
error NotFeeCollector(address sender);

// Requests
error EmptyCtHandles();
error EmptyCtHandleContractPairs();
error EmptyHandles();
error EmptyContractAddresses();
error ContractAddressesMaxLengthExceeded(uint256 maxLength, uint256 actualLength);
error InvalidNullDurationDays();
error InvalidNullDurationSeconds();
error MaxDurationDaysExceeded(uint256 maxValue, uint256 actualValue);
error MaxDurationSecondsExceeded(uint256 maxValue, uint256 actualValue);
error StartTimestampInFuture(uint256 currentTimestamp, uint256 startTimestamp);
error UserDecryptionRequestExpired(uint256 currentTimestamp, RequestValidity requestValidity);
error UserDecryptionRequestExpiredSeconds(uint256 currentTimestamp, RequestValiditySeconds requestValidity);
error ContractNotInContractAddresses(address contractAddress, address[] contractAddresses);
error UserAddressInContractAddresses(address userAddress, address[] contractAddresses);
error DelegatorAddressInContractAddresses(address delegatorAddress, address[] contractAddresses);
error CtHandleChainIdDiffersFromContractChainId(bytes32 ctHandle, uint256 chainId, uint256 contractChainId);
error MaxDecryptionRequestBitSizeExceeded(uint256 maxBitSize, uint256 totalBitSize);
error DifferentKeyIdsNotAllowed(SnsCiphertextMaterial first, SnsCiphertextMaterial invalid);
error InvalidFHEType(uint8 fheTypeUint8);
error UnsupportedFHEType(uint8 fheType);
error InvalidExtraDataLength(uint256 length, uint256 minimumLength);
error UnsupportedExtraDataVersion(uint8 version);
error InvalidNullContextId();
error CiphertextMaterialNotFound(bytes32 ctHandle);

// Signatures
error InvalidUserSignature(bytes signature);
error ECDSAInvalidSignature();
error ECDSAInvalidSignatureLength(uint256 length);
error ECDSAInvalidSignatureS(bytes32 s);

// Responses
error DecryptionNotRequested(uint256 decryptionId);
error KmsNodeAlreadySigned(uint256 decryptionId, address signer);
error VerifyProofNotRequested(uint256 zkProofId);
error CoprocessorAlreadyVerified(uint256 zkProofId, address txSender, address signer);
error CoprocessorAlreadyRejected(uint256 zkProofId, address txSender, address signer);
