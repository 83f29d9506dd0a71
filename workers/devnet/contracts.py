"""The compiled contracts: bytecode, and encoding of their calls and events by the committed ABI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from eth_abi.abi import decode, encode

from workers.devnet.eip712 import keccak256

ARTIFACTS: Final = Path(__file__).resolve().parents[2] / "contracts" / "artifacts"


def abi_type(entry: dict[str, Any]) -> str:
    """The canonical type of an ABI parameter, tuples written out."""
    kind: str = entry["type"]
    if not kind.startswith("tuple"):
        return kind
    inner = ",".join(abi_type(part) for part in entry["components"])
    return f"({inner}){kind.removeprefix('tuple')}"


def signature(entry: dict[str, Any]) -> str:
    """`name(type,...)` of a function, event or error."""
    return f"{entry['name']}({','.join(abi_type(part) for part in entry['inputs'])})"


@dataclass(frozen=True, slots=True)
class Event:
    """An event with its topic (0x hex) and the types of its fields that are not indexed."""

    signature: str
    topic: str
    data_types: tuple[str, ...]

    def decode(self, log: dict[str, Any]) -> tuple[Any, ...]:
        """The fields that are not indexed, in order."""
        return tuple(decode(self.data_types, bytes.fromhex(log["data"][2:])))


@dataclass(frozen=True)
class Contract:
    """One compiled contract."""

    name: str
    abi: tuple[dict[str, Any], ...]
    bytecode: bytes

    def call(self, function: str, *values: Any) -> bytes:
        """Call data. `function` is a name, or the whole signature where the name is overloaded.

        Raises:
            KeyError: no such function, or several of that name.
        """
        entry = self._one("function", function)
        types = [abi_type(part) for part in entry["inputs"]]
        return keccak256(signature(entry).encode())[:4] + encode(types, values)

    def result(self, function: str, data: bytes) -> tuple[Any, ...]:
        """The decoded return values of a function."""
        entry = self._one("function", function)
        return tuple(decode([abi_type(part) for part in entry["outputs"]], data))

    def creation(self, *values: Any) -> bytes:
        """Bytecode with encoded constructor arguments."""
        found = [entry for entry in self.abi if entry["type"] == "constructor"]
        types = [abi_type(part) for part in found[0]["inputs"]] if found else []
        return self.bytecode + encode(types, values)

    def event(self, name: str) -> Event:
        """The event of that name or whole signature. Raises KeyError as `call` does."""
        entry = self._one("event", name)
        text = signature(entry)
        data_types = tuple(abi_type(part) for part in entry["inputs"] if not part["indexed"])
        return Event(text, "0x" + keccak256(text.encode()).hex(), data_types)

    def _one(self, kind: str, name: str) -> dict[str, Any]:
        found = [entry for entry in self.abi if entry["type"] == kind and name in (entry["name"], signature(entry))]
        if len(found) != 1:
            raise KeyError(f"{self.name} has {len(found)} of {kind} {name}")
        return found[0]


@cache
def contract(name: str) -> Contract:
    """The committed artifact of that name. Raises FileNotFoundError."""
    artifact = json.loads((ARTIFACTS / f"{name}.json").read_text(encoding="utf-8"))
    return Contract(name, tuple(artifact["abi"]), bytes.fromhex(artifact["bytecode"][2:]))
