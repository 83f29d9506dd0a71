// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {EnforcedPause, ExpectedPause, NotGatewayOwner} from "./GatewayErrors.sol";

/// @title One owner and a pause switch, shared by the gateway contracts.
abstract contract GatewayOwned {
    address public immutable owner;
    bool public paused;

    event Paused(address account);
    event Unpaused(address account);

    constructor() {
        owner = msg.sender;
    }

    modifier onlyOwner() {
        if (msg.sender != owner) revert NotGatewayOwner(msg.sender);
        _;
    }

    modifier whenNotPaused() {
        if (paused) revert EnforcedPause();
        _;
    }

    /// @notice Refuse new requests with `EnforcedPause` until `unpause`.
    function pause() external onlyOwner whenNotPaused {
        paused = true;
        emit Paused(msg.sender);
    }

    function unpause() external onlyOwner {
        if (!paused) revert ExpectedPause();
        paused = false;
        emit Unpaused(msg.sender);
    }
}
