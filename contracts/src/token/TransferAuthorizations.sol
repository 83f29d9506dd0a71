// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {TypedSignatures} from "../gateway/TypedSignatures.sol";

/// @title EIP-3009: transfers by a signed authorization, in the split form (v, r, s) of the standard.
/// @notice The one nonce of an authorization serves to use it, to receive by it, or to cancel it, once.
abstract contract TransferAuthorizations {
    bytes32 public constant TRANSFER_WITH_AUTHORIZATION_TYPEHASH =
        keccak256(
            "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
        );
    bytes32 public constant RECEIVE_WITH_AUTHORIZATION_TYPEHASH =
        keccak256(
            "ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
        );
    bytes32 public constant CANCEL_AUTHORIZATION_TYPEHASH =
        keccak256("CancelAuthorization(address authorizer,bytes32 nonce)");

    /// @notice True once an authorization was used or canceled.
    mapping(address authorizer => mapping(bytes32 nonce => bool used)) public authorizationState;

    event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce);
    event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce);

    error AuthorizationNotYetValid(uint256 validAfter, uint256 currentTimestamp);
    error AuthorizationExpired(uint256 validBefore, uint256 currentTimestamp);
    error AuthorizationAlreadyUsed(address authorizer, bytes32 nonce);
    error InvalidAuthorizationSignature(address expected, address recovered);
    error CallerMustBePayee(address payee, address caller);

    /// @notice Anybody may carry out a signed transfer.
    function transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external {
        _transferBy(
            TRANSFER_WITH_AUTHORIZATION_TYPEHASH,
            from,
            to,
            value,
            validAfter,
            validBefore,
            nonce,
            abi.encodePacked(r, s, v)
        );
    }

    /// @notice As `transferWithAuthorization`, by the payee alone: nobody can run ahead of a contract that receives.
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external {
        if (msg.sender != to) revert CallerMustBePayee(to, msg.sender);
        _transferBy(
            RECEIVE_WITH_AUTHORIZATION_TYPEHASH,
            from,
            to,
            value,
            validAfter,
            validBefore,
            nonce,
            abi.encodePacked(r, s, v)
        );
    }

    /// @notice The authorizer makes an authorization unusable.
    function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s) external {
        _whenOpen();
        bytes32 structHash = keccak256(abi.encode(CANCEL_AUTHORIZATION_TYPEHASH, authorizer, nonce));
        _consume(authorizer, nonce, structHash, abi.encodePacked(r, s, v));
        emit AuthorizationCanceled(authorizer, nonce);
    }

    // solhint-disable-next-line func-name-mixedcase
    function DOMAIN_SEPARATOR() public view virtual returns (bytes32);

    /// @dev Reverts while the token is paused.
    function _whenOpen() internal view virtual;

    /// @dev Moves tokens and emits Transfer; the event directly follows AuthorizationUsed.
    function _move(address from, address to, uint256 value) internal virtual;

    function _transferBy(
        bytes32 typehash,
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes memory signature
    ) private {
        _whenOpen();
        if (block.timestamp <= validAfter) revert AuthorizationNotYetValid(validAfter, block.timestamp);
        if (block.timestamp >= validBefore) revert AuthorizationExpired(validBefore, block.timestamp);
        bytes32 structHash = keccak256(abi.encode(typehash, from, to, value, validAfter, validBefore, nonce));
        _consume(from, nonce, structHash, signature);
        emit AuthorizationUsed(from, nonce);
        _move(from, to, value);
    }

    function _consume(address authorizer, bytes32 nonce, bytes32 structHash, bytes memory signature) private {
        if (authorizationState[authorizer][nonce]) revert AuthorizationAlreadyUsed(authorizer, nonce);
        address recovered = TypedSignatures.recover(TypedSignatures.digest(DOMAIN_SEPARATOR(), structHash), signature);
        if (recovered != authorizer) revert InvalidAuthorizationSignature(authorizer, recovered);
        authorizationState[authorizer][nonce] = true;
    }
}
