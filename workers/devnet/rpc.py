"""JSON-RPC over one kept HTTP connection, for the devnet's own processes and for re-checks.

Independent of `workers.chain` on purpose: what re-checks the relayer must not share its code.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

TIMEOUT_SECONDS: Final = 20.0
BATCH_SIZE: Final = 100
RECEIPT_TIMEOUT_SECONDS: Final = 20.0


class RpcFailure(Exception):
    """The node answered with an error."""

    def __init__(self, method: str, error: dict[str, Any]) -> None:
        super().__init__(f"{method}: {error.get('message')} (code {error.get('code')})")
        self.code = error.get("code")
        self.data = error.get("data")


class Rpc:
    """One endpoint. Not safe for threads. Raises OSError while the node cannot be reached."""

    def __init__(self, url: str, timeout: float = TIMEOUT_SECONDS) -> None:
        parts = urlsplit(url)
        if parts.hostname is None:
            raise ValueError(f"no host in {url}")
        self.url = url
        self._path = parts.path or "/"
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)

    def call(self, method: str, *params: Any) -> Any:
        """The result of one call. Raises RpcFailure."""
        answer = self._post(_request(0, method, params))
        if "error" in answer:
            raise RpcFailure(method, answer["error"])
        return answer["result"]

    def batch(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Results in the order of `calls`. Raises RpcFailure for the first one that failed."""
        results: list[Any] = []
        for start in range(0, len(calls), BATCH_SIZE):
            part = calls[start : start + BATCH_SIZE]
            answers = self._post([_request(place, method, params) for place, (method, params) in enumerate(part)])
            if isinstance(answers, dict):
                raise RpcFailure(part[0][0], answers.get("error", {}))
            for (method, _), answer in zip(part, sorted(answers, key=lambda item: int(item["id"])), strict=True):
                if "error" in answer:
                    raise RpcFailure(method, answer["error"])
                results.append(answer["result"])
        return results

    def head(self) -> int:
        return int(self.call("eth_blockNumber"), 16)

    def chain_id(self) -> int:
        return int(self.call("eth_chainId"), 16)

    def genesis_hash(self) -> str:
        return str(self.call("eth_getBlockByNumber", "0x0", False)["hash"])

    def nonce(self, address: str, block: str = "latest") -> int:
        return int(self.call("eth_getTransactionCount", address, block), 16)

    def eth_call(self, to: str, data: bytes, block: str = "latest") -> bytes:
        answer: str = self.call("eth_call", {"to": to, "data": "0x" + data.hex()}, block)
        return bytes.fromhex(answer[2:])

    def logs(self, addresses: Sequence[str], topics: Sequence[Any], first: int, last: int) -> list[dict[str, Any]]:
        """Logs of the block range, both ends included. None in an empty one, which nodes take for an error once it begins past the head."""
        if first > last:
            return []
        query = {"address": list(addresses), "topics": list(topics), "fromBlock": hex(first), "toBlock": hex(last)}
        found: list[dict[str, Any]] = self.call("eth_getLogs", query)
        return found

    def receipts(self, tx_hashes: Iterable[str], timeout: float = RECEIPT_TIMEOUT_SECONDS) -> list[dict[str, Any]]:
        """Receipts of all transactions, waited for. Raises TimeoutError when one is not mined in time."""
        hashes = list(tx_hashes)
        deadline = time.monotonic() + timeout
        while True:
            found = self.batch([("eth_getTransactionReceipt", [tx_hash]) for tx_hash in hashes])
            if all(found):
                return found
            if time.monotonic() > deadline:
                missing = [tx_hash for tx_hash, receipt in zip(hashes, found, strict=True) if not receipt]
                raise TimeoutError(f"not mined within {timeout} s: {missing[:3]} (of {len(missing)})")
            time.sleep(0.05)

    def wait_ready(self, chain_id: int, timeout: float) -> None:
        """Returns once the node answers with the chain id. Raises TimeoutError, or ValueError for another chain."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                found = self.chain_id()
            except OSError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no chain at {self.url} within {timeout} s") from None
                time.sleep(0.05)
                continue
            if found != chain_id:
                raise ValueError(f"{self.url} is chain {found}, not {chain_id}")
            return

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Rpc:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post(self, body: Any) -> Any:
        """One retry on a fresh connection: the kept one may have been closed while idle."""
        raw = json.dumps(body).encode()
        try:
            return self._exchange(raw)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self._connection.close()
            return self._exchange(raw)

    def _exchange(self, raw: bytes) -> Any:
        try:
            self._connection.request("POST", self._path, raw, {"Content-Type": "application/json"})
            return json.loads(self._connection.getresponse().read())
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if isinstance(error, OSError):
                raise
            raise ConnectionResetError(str(error)) from error


def _request(place: int, method: str, params: Sequence[Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": place, "method": method, "params": list(params)}
