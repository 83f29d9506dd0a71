// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {TypedSignatures} from "../gateway/TypedSignatures.sol";

/// @title A wallet contract with one owner key (ERC-1271), for users that are not plain accounts.
contract ContractWallet {
    address public immutable owner;

    constructor(address owner_) {
        owner = owner_;
    }

    /// @return 0x1626ba7e when the owner signed `hash`, else 0xffffffff.
    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        return TypedSignatures.tryRecover(hash, signature) == owner ? bytes4(0x1626ba7e) : bytes4(0xffffffff);
    }
}
