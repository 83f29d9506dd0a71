"""Asks each gateway endpoint by itself what it knows of a case, for the reviewer's page. Short deadlines, reads only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from requests_app.config import Config, GatewayConfig, config
from requests_app.probing import NodeReport, Question, Receipt, Sighting
from requests_app.states import Kind
from workers.chain.abi_reader import MalformedAbi
from workers.chain.calldata import (
    BALANCE_OF,
    IS_DECRYPTION_DONE,
    IS_PROOF_REJECTED,
    IS_PROOF_VERIFIED,
    ContractCall,
    Function,
    decode_bool,
    decode_uint,
)
from workers.chain.hexdata import MalformedHex, data, hex_data, quantity
from workers.chain.payments import AuthorizationKey
from workers.chain.rpc import Call, RpcEndpoint
from workers.chain.rpc_errors import Answer, Failed, Missing, Ok, WrongChain
from workers.chain.views import block_of, receipt_of, transaction_of

TIMEOUT: Final = (1.0, 3.0)
NONCE_BLOCKS: Final = ("latest", "pending", "finalized")
LARGEST: Final = 20
NODES_AT_ONCE: Final = 4


class Prober:
    """Opens its own connections for each question: a probe is rare, and a hanging node must not be remembered as healthy."""

    def __init__(self, chains: Callable[[], Config] = config) -> None:
        self._chains = chains

    def ask(self, question: Question) -> list[NodeReport]:
        """One report an endpoint, in the configured order; the nodes are asked side by side. Raises ConfigurationError."""
        gateway = self._chains().gateway
        with ThreadPoolExecutor(min(NODES_AT_ONCE, len(gateway.rpc_urls))) as pool:
            return list(pool.map(lambda url: ask_node(url, gateway, question), gateway.rpc_urls))


def ask_node(url: str, gateway: GatewayConfig, question: Question) -> NodeReport:
    """What one node says. The report names the node without its address's secret part."""
    endpoint = RpcEndpoint(url, TIMEOUT, chain_id=gateway.chain_id, finality_depth=gateway.finality_depth)
    hashes = list(question.hashes)[:LARGEST]
    flags = flag_functions(gateway, question)
    began = time.monotonic()
    try:
        answers = endpoint.batch(_calls(question, hashes, flags))
    except WrongChain as error:
        return NodeReport(endpoint.name, error=str(error))
    finally:
        endpoint.close()
    spent = time.monotonic() - began
    if all(isinstance(answer, Missing) for answer in answers):
        first = answers[0]
        return NodeReport(endpoint.name, seconds=spent, error=first.reason if isinstance(first, Missing) else "")
    return _report(endpoint.name, question, hashes, flags, answers, spent)


def flag_functions(gateway: GatewayConfig, question: Question) -> list[tuple[str, bytes, Function]]:
    """The views that say whether the gateway holds an answer: (name, contract, function)."""
    if question.reference is None or question.kind is Kind.PAYMENT:
        return []
    if question.kind is Kind.INPUT_PROOF:
        verification = gateway.input_verification
        return [
            ("proof verified", verification, IS_PROOF_VERIFIED),
            ("proof rejected", verification, IS_PROOF_REJECTED),
        ]
    return [("decryption done", gateway.decryption, IS_DECRYPTION_DONE)]


def _calls(question: Question, hashes: Sequence[bytes], flags: Sequence[tuple[str, bytes, Function]]) -> list[Call]:
    calls: list[Call] = [
        ("eth_getBlockByNumber", ["latest", False]),
        ("eth_getBlockByNumber", ["finalized", False]),
    ]
    if question.account is not None:
        account = hex_data(question.account)
        calls += [("eth_getTransactionCount", [account, block]) for block in NONCE_BLOCKS]
        calls.append(("eth_getBalance", [account, "latest"]))
    for tx_hash in map(hex_data, hashes):
        calls += [("eth_getTransactionReceipt", [tx_hash]), ("eth_getTransactionByHash", [tx_hash])]
    for _, contract, function in flags:
        call = function.encode(int.from_bytes(question.reference or b"", "big"))
        calls.append(("eth_call", [{"to": hex_data(contract), "data": hex_data(call)}, "latest"]))
    for _, view, block in payment_views(question):
        calls.append(("eth_call", [{"to": hex_data(view.to), "data": hex_data(view.data)}, block]))
    return calls


def payment_views(question: Question) -> list[tuple[str, ContractCall, str]]:
    """What the token is asked about a payment: (name, call, block). The last is the payer's balance."""
    if question.token is None or question.payer is None or question.reference is None:
        return []
    used = AuthorizationKey(question.token, question.payer, question.reference).state_call
    funds = ContractCall(question.token, BALANCE_OF.encode(question.payer))
    return [("authorization used", used, "latest"), ("… finally", used, "finalized"), ("funds", funds, "latest")]


def _report(
    name: str,
    question: Question,
    hashes: Sequence[bytes],
    flags: Sequence[tuple[str, bytes, Function]],
    answers: Sequence[Answer[Any]],
    spent: float,
) -> NodeReport:
    rest = iter(answers)
    head, finalized = (_read(next(rest), block_of) for _ in range(2))
    nonces, balance = {}, None
    if question.account is not None:
        nonces = {block: _read(next(rest), quantity) for block in NONCE_BLOCKS}
        balance = _read(next(rest), quantity)
    sightings = [_sighting(tx_hash, next(rest), next(rest)) for tx_hash in hashes]
    done = {flag: _read(next(rest), lambda value: decode_bool(data(value))) for flag, _, _ in flags}
    funds = None
    for flag, _, _ in payment_views(question):
        if flag == "funds":
            funds = _read(next(rest), lambda value: decode_uint(data(value)))
        else:
            done[flag] = _read(next(rest), lambda value: decode_bool(data(value)))
    return NodeReport(
        name,
        funds=funds,
        head=head.number if head else None,
        finalized=finalized.number if finalized else None,
        nonces=nonces,
        balance=balance,
        flags=done,
        sightings=sightings,
        seconds=spent,
    )


def _sighting(tx_hash: bytes, receipt: Answer[Any], known: Answer[Any]) -> Sighting:
    for answer in (receipt, known):
        if isinstance(answer, Missing):
            return Sighting(tx_hash, None, False, False, answer.reason)
        if isinstance(answer, Failed):
            return Sighting(tx_hash, None, False, False, str(answer.error))
    found, seen = _read(receipt, receipt_of), _read(known, transaction_of)
    mined = Receipt(found.block_number, found.status) if found else None
    return Sighting(tx_hash, mined, seen is not None, seen is not None and seen.block_number is None)


def _read(answer: Answer[Any], read: Callable[[Any], Any]) -> Any:
    """The value, or None when the node did not give one that can be read."""
    if not isinstance(answer, Ok):
        return None
    try:
        return read(answer.value)
    except (MalformedHex, MalformedAbi):
        return None
