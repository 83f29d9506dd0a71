from __future__ import annotations

import re

import pytest
from eth_abi.abi import encode

from workers.chain.errors import SEND_RULES, SendClass, classify_message, classify_send, decode_revert, revert_of
from workers.chain.keccak import selector
from workers.chain.reverts import BY_SELECTOR, RULES
from workers.chain.rpc_errors import Failed, Missing, Ok, RpcError, RpcRateLimited, RpcUnavailable

# What nodes really say (geth, nethermind, besu, erigon, reth, anvil, arbitrum, openethereum), by class.
GOLDEN: list[tuple[SendClass, int, str]] = [
    (SendClass.ALREADY_KNOWN, -32000, "already known"),
    (SendClass.ALREADY_KNOWN, -32000, "known transaction: 0xabc"),
    (SendClass.ALREADY_KNOWN, -32000, "ALREADY_EXISTS: already known"),
    (SendClass.ALREADY_KNOWN, -32010, "Transaction with the same hash was already imported."),
    (SendClass.ALREADY_KNOWN, -32010, "AlreadyKnown"),
    (SendClass.ALREADY_KNOWN, -32603, "Pool(AlreadyImported)"),
    (SendClass.ALREADY_KNOWN, -32003, "transaction already imported"),
    (SendClass.NONCE_TOO_LOW, -32000, "nonce too low: next nonce 5, tx nonce 3"),
    (SendClass.NONCE_TOO_LOW, -32603, "nonce too low"),
    (SendClass.NONCE_TOO_LOW, -32001, "Nonce is too low"),
    (SendClass.NONCE_TOO_LOW, -32010, "OldNonce"),
    (SendClass.NONCE_TOO_LOW, -32000, "Pool(Stale)"),
    (SendClass.NONCE_TOO_LOW, -32000, "invalid transaction nonce"),
    (SendClass.NONCE_TOO_HIGH, -32000, "nonce too high"),
    (SendClass.NONCE_TOO_HIGH, -32010, "NonceGap"),
    (SendClass.NONCE_TOO_HIGH, -32000, "Transaction nonce 9 exceeds next nonce 5"),
    (SendClass.NONCE_TOO_HIGH, -32000, "transaction nonce too far in the future"),
    (SendClass.NONCE_TOO_HIGH, -32000, "nonce out of range"),
    (SendClass.REPLACEMENT_UNDERPRICED, -32000, "replacement transaction underpriced"),
    (SendClass.REPLACEMENT_UNDERPRICED, -32000, "another transaction with same nonce is in the queue"),
    (SendClass.UNDERPRICED, -32000, "transaction underpriced: gas tip cap 1, minimum needed 1000000"),
    (SendClass.UNDERPRICED, -32010, "FeeTooLow, MaxFeePerGas too low to compete"),
    (
        SendClass.UNDERPRICED,
        -32000,
        "max fee per gas less than block base fee: address 0xab, maxFeePerGas: 1, baseFee: 7",
    ),
    (SendClass.UNDERPRICED, -32000, "gas price below minimum"),
    (SendClass.FEE_CAP, -32000, "tx fee (2.10 ether) exceeds the configured cap (1.00 ether)"),
    (SendClass.INSUFFICIENT_FUNDS, -32000, "insufficient funds for gas * price + value: balance 0, tx cost 1"),
    (SendClass.INSUFFICIENT_FUNDS, -32003, "Insufficient funds for gas * price + value"),
    (SendClass.INSUFFICIENT_FUNDS, -32010, "InsufficientFunds, Account balance: 0, cumulative cost: 1"),
    (SendClass.INSUFFICIENT_FUNDS, -32000, "sender balance overdraft"),
    (SendClass.POOL_FULL, -32000, "txpool is full"),
    (SendClass.POOL_FULL, -32010, "There are too many transactions in the queue. Your transaction was dropped"),
    (SendClass.POOL_FULL, -32000, "queue full"),
    (SendClass.REJECTED_PAYLOAD, -32000, "intrinsic gas too low"),
    (SendClass.REJECTED_PAYLOAD, -32000, "exceeds block gas limit"),
    (SendClass.REJECTED_PAYLOAD, -32000, "oversized data"),
    (SendClass.REJECTED_PAYLOAD, -32000, "invalid sender"),
    (SendClass.REJECTED_PAYLOAD, -32000, "invalid chain id for signer: have 1 want 2"),
    (SendClass.REVERTED, 3, "execution reverted: custom error 0xd93c0665"),
    (SendClass.REVERTED, -32000, "execution reverted"),
    (SendClass.RATE_LIMITED, -32005, "daily request count exceeded"),
    (SendClass.RATE_LIMITED, 429, "Your app has exceeded its compute units per second"),
    (SendClass.RATE_LIMITED, -32000, "project ID request rate limit"),
    (SendClass.UNKNOWN, -32000, "unknown transaction type of error"),
    (SendClass.UNKNOWN, -32603, "Internal error"),
    (SendClass.UNKNOWN, -32000, "unknown transaction"),
    (SendClass.UNKNOWN, 0, ""),
]


@pytest.mark.parametrize(("expected", "code", "message"), GOLDEN, ids=lambda value: str(value)[:40])
def test_golden_send_errors(expected: SendClass, code: int, message: str) -> None:
    assert classify_message(code, message) is expected
    assert classify_send(Failed(RpcError(code, message))) is expected
    assert classify_message(code, message.upper()) is expected


def test_every_rule_has_a_golden_message() -> None:
    assert {rule.send_class for rule in SEND_RULES} <= {expected for expected, _, _ in GOLDEN}


def test_a_wrapped_nonce_error_is_not_taken_for_a_provider_fault() -> None:
    """OpenZeppelin relayer 681: -32603 with "nonce too low" paused every provider."""
    assert classify_message(-32603, "Internal error: nonce too low") is SendClass.NONCE_TOO_LOW
    assert classify_message(-32005, "nonce too low") is SendClass.NONCE_TOO_LOW


def test_returned_hash_must_be_ours() -> None:
    assert classify_send(Ok("0xAB"), "0xab") is SendClass.ACCEPTED
    assert classify_send(Ok("0xAB")) is SendClass.ACCEPTED
    assert classify_send(Ok("0xcd"), "0xab") is SendClass.UNKNOWN
    assert classify_send(Ok(None), None) is SendClass.UNKNOWN


def test_transport_outcomes() -> None:
    assert classify_send(RpcUnavailable("refused", sent=False)) is SendClass.TRANSPORT_BEFORE
    assert classify_send(RpcUnavailable("timeout", sent=True)) is SendClass.UNKNOWN
    assert classify_send(RpcRateLimited("429", None)) is SendClass.RATE_LIMITED
    assert classify_send(Missing("short")) is SendClass.UNKNOWN
    assert classify_send(Missing("not attempted", sent=False)) is SendClass.TRANSPORT_BEFORE
    assert classify_send(Missing("x", sent=False, answer_status=429)) is SendClass.RATE_LIMITED


REFERENCE_LABELS = {
    "d93c0665": ("EnforcedPause()", 503, "protocol_paused"),
    "e450d38c": ("ERC20InsufficientBalance", 503, "insufficient_balance"),
    "fb8f41b2": ("ERC20InsufficientAllowance", 503, "insufficient_allowance"),
    "2a873d27": ("InvalidUserSignature", 400, "validation_failed"),
    "f645eedf": ("ECDSAInvalidSignature()", 400, "validation_failed"),
    "fce698f7": ("ECDSAInvalidSignatureLength", 400, "validation_failed"),
    "d78bce0c": ("ECDSAInvalidSignatureS", 400, "validation_failed"),
}
LONGER_LIST = [
    "b6679c3b",
    "603668c4",
    "77ddbe81",
    "30348040",
    "678fcfce",
    "f24c0887",
    "32951863",
    "ae52eb12",
    "de2859c1",
    "a4c30391",
    "dc4d78b1",
    "c3446ac7",
    "9590e916",
    "e7f4895d",
    "2de75438",
    "240e9309",
    "cfae921f",
    "641950d7",
    "be7830b1",
    "93548a66",
    "2139cc2c",
    "cb17b7a5",
    "d48af942",
    "4711083f",
]
LABELS_503 = {"readiness_check_timed_out", "protocol_paused", "insufficient_balance", "insufficient_allowance"}


def test_the_revert_table_is_the_reference() -> None:
    for text, (name, status, label) in REFERENCE_LABELS.items():
        revert = decode_revert(bytes.fromhex(text))
        assert (revert.name, revert.http_status, revert.label) == (name, status, label)
    assert {key.hex() for key in BY_SELECTOR} == {*REFERENCE_LABELS, *LONGER_LIST, "0666cbdf"}
    for text in LONGER_LIST:
        assert decode_revert(bytes.fromhex(text)).http_status == 400


def test_rules_are_consistent() -> None:
    for rule in RULES:
        assert BY_SELECTOR[selector(rule.signature)] is rule
        if rule.http_status == 400:
            # The SDK takes a 400 validation_failed only with details, which need a field.
            assert rule.label == "validation_failed"
            assert rule.field
        else:
            assert rule.label in LABELS_503
        assert re.fullmatch(r"[A-Z].*[^.]", rule.message)


def test_arguments_are_decoded_and_text_is_short() -> None:
    data = selector("ERC20InsufficientBalance(address,uint256,uint256)")
    data += encode(["address", "uint256", "uint256"], ["0x" + "11" * 20, 5, 9])
    revert = decode_revert(data)
    assert revert.arguments == ("0x" + "11" * 20, 5, 9)
    assert revert.text == "ERC20InsufficientBalance 0xe450d38c"
    assert revert.operator
    nested = selector("UserDecryptionRequestExpired(uint256,(uint256,uint256))")
    assert decode_revert(nested + encode(["uint256", "(uint256,uint256)"], [1, (2, 3)])).arguments == (1, (2, 3))
    assert decode_revert(data[:20]).arguments == ()


def test_only_a_missing_ciphertext_is_transient() -> None:
    assert [rule.signature for rule in RULES if rule.transient] == ["CiphertextMaterialNotFound(bytes32)"]


@pytest.mark.parametrize("data", [b"", b"\x12", b"\xde\xad\xbe\xef", b"\xde\xad\xbe\xef" + b"\x01" * 40])
def test_unknown_reverts_keep_selector_and_data(data: bytes) -> None:
    revert = decode_revert(data)
    assert (revert.selector, revert.data, revert.http_status) == (data[:4], data, 500)
    assert revert.label == "internal_server_error"


def test_error_strings_and_panics_are_readable() -> None:
    text = decode_revert(selector("Error(string)") + encode(["string"], ["no luck"]))
    assert (text.message, text.label) == ("Execution reverted: no luck", "internal_server_error")
    panic = decode_revert(selector("Panic(uint256)") + encode(["uint256"], [0x11]))
    assert panic.message == "Execution reverted: panic code 0x11"


@pytest.mark.parametrize(
    ("code", "message", "data"),
    [
        (3, "execution reverted", "0xd93c0665"),
        (-32000, "execution reverted", {"data": "0xd93c0665"}),
        (-32015, "VM execution error.", {"message": "revert", "data": "Reverted 0xd93c0665"}),
        (3, "execution reverted: custom error 0xd93c0665", None),
        (-32603, "Error: VM reverted with custom error '0xd93c0665'", "not hex"),
    ],
)
def test_revert_is_found_wherever_nodes_put_it(code: int, message: str, data: object) -> None:
    revert = revert_of(RpcError(code, message, data))
    assert revert is not None
    assert revert.label == "protocol_paused"


def test_an_address_in_the_text_is_not_taken_for_a_selector() -> None:
    """The Rust relayer takes the first 0x and eight digits of the text, which may be an address."""
    error = RpcError(3, "execution reverted at 0xd93c0665aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "0xe450d38c")
    revert = revert_of(error)
    assert revert is not None
    assert revert.label == "insufficient_balance"
    without = revert_of(RpcError(3, "execution reverted at 0xd93c0665aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"))
    assert without is not None
    assert without.label == "internal_server_error"


def test_other_errors_are_no_reverts() -> None:
    assert revert_of(RpcError(-32000, "header not found")) is None
    assert revert_of(RpcError(-32000, "nonce too low", "0xd93c0665")) is None
