// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

/// @title Signers, threshold and EIP-712 domain that a host chain expects of answers from the gateway.
/// @dev The domain is the gateway's: its chain id and the address of its contract, not this one's.
abstract contract SignerRegistry {
    error NotHostOwner(address sender);

    address public immutable owner;
    uint256 private immutable _sourceChainId;
    address private immutable _sourceContract;
    string private _name;
    address[] private _signers;
    uint256 private _threshold;

    event NewContextSet(address[] newSignersSet, uint256 newThreshold);

    constructor(string memory name, uint256 sourceChainId, address sourceContract) {
        owner = msg.sender;
        _name = name;
        _sourceChainId = sourceChainId;
        _sourceContract = sourceContract;
    }

    function defineNewContext(address[] calldata signers, uint256 threshold) external {
        if (msg.sender != owner) revert NotHostOwner(msg.sender);
        _signers = signers;
        _threshold = threshold;
        emit NewContextSet(signers, threshold);
    }

    function getThreshold() external view returns (uint256) {
        return _threshold;
    }

    /// @notice ERC-5267.
    function eip712Domain()
        external
        view
        returns (
            bytes1 fields,
            string memory name,
            string memory version,
            uint256 chainId,
            address verifyingContract,
            bytes32 salt,
            uint256[] memory extensions
        )
    {
        return (hex"0f", _name, "1", _sourceChainId, _sourceContract, bytes32(0), new uint256[](0));
    }

    function _allSigners() internal view returns (address[] memory) {
        return _signers;
    }
}
