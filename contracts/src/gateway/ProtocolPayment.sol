// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {GatewayOwned} from "./GatewayOwned.sol";
import {NotFeeCollector} from "./GatewayErrors.sol";

interface IFeeToken {
    function transferFrom(address from, address to, uint256 value) external returns (bool);
}

/// @title Takes the fee of each request from its sender, in fee tokens, by `transferFrom`.
/// @dev The payer approves this contract. Token errors (balance, allowance) reach the caller unchanged.
contract ProtocolPayment is GatewayOwned {
    IFeeToken public immutable feeToken;
    address public immutable treasury;
    mapping(address collector => bool allowed) public isCollector;

    uint256 public inputVerificationPrice;
    uint256 public publicDecryptionPrice;
    uint256 public userDecryptionPrice;

    event SetPrices(uint256 inputVerification, uint256 publicDecryption, uint256 userDecryption);

    constructor(IFeeToken feeToken_, address treasury_) {
        feeToken = feeToken_;
        treasury = treasury_;
    }

    modifier onlyCollector() {
        if (!isCollector[msg.sender]) revert NotFeeCollector(msg.sender);
        _;
    }

    /// @notice Prices in the token's smallest unit.
    function setPrices(uint256 input, uint256 publicDecryption, uint256 userDecryption) external onlyOwner {
        inputVerificationPrice = input;
        publicDecryptionPrice = publicDecryption;
        userDecryptionPrice = userDecryption;
        emit SetPrices(input, publicDecryption, userDecryption);
    }

    function setCollector(address collector, bool allowed) external onlyOwner {
        isCollector[collector] = allowed;
    }

    function collectInputVerificationFee(address payer) external onlyCollector {
        _collect(payer, inputVerificationPrice);
    }

    function collectPublicDecryptionFee(address payer) external onlyCollector {
        _collect(payer, publicDecryptionPrice);
    }

    function collectUserDecryptionFee(address payer) external onlyCollector {
        _collect(payer, userDecryptionPrice);
    }

    function _collect(address payer, uint256 price) private {
        if (price != 0) feeToken.transferFrom(payer, treasury, price);
    }
}
