// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

/// @title Who may use and decrypt which handle on the host chain.
/// @dev Devnet: anybody may grant. Batch grants with `multicall`; reads go through it as well.
contract ACL {
    error SenderCannotBeDelegate(address delegate);

    mapping(bytes32 handle => mapping(address account => bool allowed)) private _allowed;
    mapping(bytes32 handle => bool allowed) private _allowedForDecryption;
    mapping(address delegator => mapping(address delegate => mapping(address dapp => uint256 until))) private _delegations;

    event Allowed(address indexed caller, address indexed account, bytes32 handle);
    event AllowedForDecryption(address indexed caller, bytes32[] handlesList);
    event DelegatedForUserDecryption(
        address indexed delegator,
        address indexed delegate,
        address contractAddress,
        uint256 expirationDate
    );

    function allow(bytes32 handle, address account) external {
        _allowed[handle][account] = true;
        emit Allowed(msg.sender, account, handle);
    }

    function revoke(bytes32 handle, address account) external {
        _allowed[handle][account] = false;
    }

    function allowForDecryption(bytes32[] calldata handlesList) external {
        for (uint256 i = 0; i < handlesList.length; i++) _allowedForDecryption[handlesList[i]] = true;
        emit AllowedForDecryption(msg.sender, handlesList);
    }

    /// @notice Let `delegate` decrypt for `delegator` in `contractAddress` until `expirationDate` (Unix seconds).
    function setDelegation(
        address delegator,
        address delegate,
        address contractAddress,
        uint256 expirationDate
    ) external {
        if (delegator == delegate) revert SenderCannotBeDelegate(delegate);
        _delegations[delegator][delegate][contractAddress] = expirationDate;
        emit DelegatedForUserDecryption(delegator, delegate, contractAddress, expirationDate);
    }

    function isAllowed(bytes32 handle, address account) public view returns (bool) {
        return _allowed[handle][account];
    }

    /// @notice Same answer as `isAllowed`; the name that SDKs ask by.
    function persistAllowed(bytes32 handle, address account) external view returns (bool) {
        return _allowed[handle][account];
    }

    function isAllowedForDecryption(bytes32 handle) external view returns (bool) {
        return _allowedForDecryption[handle];
    }

    /// @notice Whether a live delegation exists and both delegator and contract may use the handle.
    function isHandleDelegatedForUserDecryption(
        address delegator,
        address delegate,
        address contractAddress,
        bytes32 handle
    ) external view returns (bool) {
        return
            _delegations[delegator][delegate][contractAddress] > block.timestamp &&
            isAllowed(handle, delegator) &&
            isAllowed(handle, contractAddress);
    }

    /// @notice Run several calls of this contract in one, as the same sender; the first revert ends it.
    function multicall(bytes[] calldata data) external returns (bytes[] memory results) {
        results = new bytes[](data.length);
        for (uint256 i = 0; i < data.length; i++) {
            (bool ok, bytes memory result) = address(this).delegatecall(data[i]);
            if (!ok) {
                assembly ("memory-safe") {
                    revert(add(result, 32), mload(result))
                }
            }
            results[i] = result;
        }
    }
}
