"""Single calls of a request: forwarded, or answered as a lagging, forgetful or broken node would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.faults.rules import Fault, Rule

Forward = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
Call = dict[str, Any]

STALE_TAGS = ("latest", "pending")
OTHER_HASH = "0x" + "ab" * 32


def answers(calls: list[Call], rules: list[Rule | None], forward: Forward, stale: Rule | None) -> list[dict[str, Any]]:
    """One answer a call, in order. Calls that a fault keeps from the node are not forwarded.

    `stale` makes the node lag for the calls that the rule names, all of them by default: a batch goes to one node.
    """
    head = max(_head(forward) - int(stale.options.get("blocks", 1)), 0) if stale else 0
    lagging = [stale is not None and stale.meets(call["method"]) for call in calls]
    kept = [index for index, rule in enumerate(rules) if not _withheld(rule)]
    asked = [_behind(calls[index], head) if lagging[index] else calls[index] for index in kept]
    found = dict(zip(kept, forward(asked), strict=True)) if kept else {}
    for index, answer in found.items():
        if lagging[index] and "result" in answer:
            found[index] = _as_of(calls[index], answer, head)
    return [_spoiled(call, rules[index], found.get(index)) for index, call in enumerate(calls)]


def _withheld(rule: Rule | None) -> bool:
    answered_here = rule is not None and rule.fault in (Fault.ERROR, Fault.OTHER_HASH)
    return answered_here and rule is not None and not rule.options.get("executed")


def _head(forward: Forward) -> int:
    (answer,) = forward([{"jsonrpc": "2.0", "id": 0, "method": "eth_blockNumber", "params": []}])
    return int(answer["result"], 16)


def _behind(call: Call, head: int) -> Call:
    """The call with `latest` as the lagging node understands it."""
    params = [hex(head) if value in STALE_TAGS else value for value in call.get("params", [])]
    if call["method"] == "eth_getLogs" and params and isinstance(params[0], dict):
        params[0] = {
            **params[0],
            **{k: hex(head) for k in ("fromBlock", "toBlock") if params[0].get(k) in STALE_TAGS},
        }
    return {**call, "params": params}


def _spoiled(call: Call, rule: Rule | None, answer: dict[str, Any] | None) -> dict[str, Any]:
    empty = {"jsonrpc": "2.0", "id": call.get("id")}
    if rule is None:
        assert answer is not None
        return answer
    if rule.fault is Fault.NULL_RECEIPT:
        return {**empty, "result": None}
    if rule.fault is Fault.WRONG_CHAIN:
        return {**empty, "result": hex(int(rule.options.get("chain_id", 1)))}
    if rule.fault is Fault.OTHER_HASH:
        return {**empty, "result": OTHER_HASH}
    if rule.fault is Fault.TWO_EVENTS:
        assert answer is not None
        return {**answer, "result": [one for found in answer.get("result") or () for one in (found, _altered(found))]}
    error = {"code": rule.options.get("code", -32603), "message": rule.options.get("message", "Internal error")}
    if "data" in rule.options:
        error["data"] = rule.options["data"]
    return {**empty, "error": error}


def _altered(entry: dict[str, Any]) -> dict[str, Any]:
    """The log with another last byte."""
    data = str(entry.get("data", "0x"))
    last = "00" if data[-2:] not in ("0x", "00") else "01"
    return {**entry, "data": (data if data == "0x" else data[:-2]) + last}


def _as_of(call: Call, answer: dict[str, Any], head: int) -> dict[str, Any]:
    """What a node whose head is `head` would have answered."""
    method, result = call["method"], answer["result"]
    if method == "eth_blockNumber":
        return {**answer, "result": hex(head)}
    if method == "eth_getLogs":
        return {**answer, "result": [entry for entry in result if int(entry["blockNumber"], 16) <= head]}
    if method in ("eth_getTransactionReceipt", "eth_getTransactionByHash") and result and result.get("blockNumber"):
        return answer if int(result["blockNumber"], 16) <= head else {**answer, "result": None}
    if method == "eth_getBlockByNumber" and result and int(result["number"], 16) > head:
        return {**answer, "result": None}
    return answer
