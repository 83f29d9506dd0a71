// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

import {EnforcedPause} from "../gateway/GatewayErrors.sol";
import {TransferAuthorizations} from "./TransferAuthorizations.sol";

/// @title A dollar token for the devnet: ERC-20 with 6 decimals, EIP-3009, a pause switch and a block list as FiatToken has them.
contract DevnetUSD is TransferAuthorizations {
    string public constant name = "Devnet USD";
    string public constant symbol = "dUSD";
    string public constant version = "2";
    uint8 public constant decimals = 6;

    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");

    address public immutable owner;
    bool public paused;
    uint256 public totalSupply;
    mapping(address account => uint256 amount) public balanceOf;
    mapping(address holder => mapping(address spender => uint256 amount)) public allowance;
    mapping(address account => bool refused) public isBlacklisted;

    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);
    event Paused(address account);
    event Unpaused(address account);
    event BlacklistChanged(address indexed account, bool refused);

    error NotTokenOwner(address sender);
    error AccountBlacklisted(address account);
    error ERC20InsufficientBalance(address sender, uint256 balance, uint256 needed);
    error ERC20InsufficientAllowance(address spender, uint256 allowance, uint256 needed);
    error ERC20InvalidReceiver(address receiver);

    modifier onlyOwner() {
        if (msg.sender != owner) revert NotTokenOwner(msg.sender);
        _;
    }

    constructor() {
        owner = msg.sender;
    }

    function mint(address to, uint256 value) external onlyOwner {
        if (to == address(0)) revert ERC20InvalidReceiver(to);
        totalSupply += value;
        balanceOf[to] += value;
        emit Transfer(address(0), to, value);
    }

    /// @notice Test switch: every transfer is refused while paused.
    function pause() external onlyOwner {
        paused = true;
        emit Paused(msg.sender);
    }

    function unpause() external onlyOwner {
        paused = false;
        emit Unpaused(msg.sender);
    }

    /// @notice Test switch: transfers from and to `account` are refused.
    function setBlacklisted(address account, bool refused) external onlyOwner {
        isBlacklisted[account] = refused;
        emit BlacklistChanged(account, refused);
    }

    function approve(address spender, uint256 value) external returns (bool) {
        allowance[msg.sender][spender] = value;
        emit Approval(msg.sender, spender, value);
        return true;
    }

    function transfer(address to, uint256 value) external returns (bool) {
        _whenOpen();
        _move(msg.sender, to, value);
        return true;
    }

    function transferFrom(address from, address to, uint256 value) external returns (bool) {
        _whenOpen();
        uint256 allowed = allowance[from][msg.sender];
        if (allowed != type(uint256).max) {
            if (allowed < value) revert ERC20InsufficientAllowance(msg.sender, allowed, value);
            allowance[from][msg.sender] = allowed - value;
        }
        _move(from, to, value);
        return true;
    }

    // solhint-disable-next-line func-name-mixedcase
    function DOMAIN_SEPARATOR() public view override returns (bytes32) {
        return
            keccak256(
                abi.encode(
                    DOMAIN_TYPEHASH,
                    keccak256(bytes(name)),
                    keccak256(bytes(version)),
                    block.chainid,
                    address(this)
                )
            );
    }

    function _whenOpen() internal view override {
        if (paused) revert EnforcedPause();
    }

    function _move(address from, address to, uint256 value) internal override {
        if (to == address(0)) revert ERC20InvalidReceiver(to);
        if (isBlacklisted[from]) revert AccountBlacklisted(from);
        if (isBlacklisted[to]) revert AccountBlacklisted(to);
        uint256 balance = balanceOf[from];
        if (balance < value) revert ERC20InsufficientBalance(from, balance, value);
        unchecked {
            balanceOf[from] = balance - value;
            balanceOf[to] += value;
        }
        emit Transfer(from, to, value);
    }
}
