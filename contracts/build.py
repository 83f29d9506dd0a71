#!/usr/bin/env python
"""Compiles the contracts and writes the committed artifacts. Run at development time: `python contracts/build.py`.

The compiler is the npm package in `contracts/solc/package-lock.json`, installed on demand. Output: one file a contract
in `contracts/artifacts` (abi, bytecode), the settings in `contracts/artifacts/compiler.json`, and the ABIs that the
relayer reads in `workers/chain/abi`. `--check` writes nothing and fails when the committed files differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
PROJECT = ROOT.parent
sys.path.insert(0, str(PROJECT))

from workers.devnet.toolchain import Node, find_node, install_packages  # noqa: E402

SOURCES = ROOT / "src"
COMPILER = ROOT / "solc"
ARTIFACTS = ROOT / "artifacts"
RELAYER_ABI = PROJECT / "workers" / "chain" / "abi"
MAX_CODE_BYTES = 24_576  # EIP-170

CONTRACTS = (
    "GatewayConfig",
    "CiphertextCommits",
    "ZamaToken",
    "ProtocolPayment",
    "Decryption",
    "InputVerification",
    "ACL",
    "ProtocolConfig",
    "KMSGeneration",
    "KMSVerifier",
    "InputVerifier",
    "ContractWallet",
    "DevnetUSD",
)
RELAYER_CONTRACTS = (
    "Decryption",
    "InputVerification",
    "ZamaToken",
    "ProtocolPayment",
    "ACL",
    "ProtocolConfig",
    "KMSGeneration",
    "ContractWallet",
    "DevnetUSD",
)
SETTINGS: dict[str, Any] = {
    "optimizer": {"enabled": True, "runs": 800},
    "viaIR": False,
    "evmVersion": "cancun",
    # No source hash in the code: the bytecode is the same wherever the checkout lies.
    "metadata": {"appendCBOR": False, "bytecodeHash": "none"},
    "outputSelection": {"*": {"*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"]}},
}


class BuildError(Exception):
    """The compiler refused the sources or broke a rule of this build."""


def ensure_compiler(node: Node) -> str:
    """Installs the locked compiler when it is missing and returns its version."""
    package = COMPILER / "node_modules" / "solc" / "package.json"
    wanted = json.loads((COMPILER / "package.json").read_text())["dependencies"]["solc"]
    if not package.exists() or json.loads(package.read_text())["version"] != wanted:
        install_packages(node, COMPILER)
    return str(wanted)


def compile_sources(node: Node) -> dict[str, dict[str, Any]]:
    """Compiler output by contract name.

    Raises:
        BuildError: any error or warning, a contract that is missing, or one above the code size limit.
    """
    sources = {
        path.relative_to(SOURCES).as_posix(): {"content": path.read_text(encoding="utf-8")}
        for path in sorted(SOURCES.rglob("*.sol"))
    }
    request = {"language": "Solidity", "sources": sources, "settings": SETTINGS}
    done = subprocess.run(
        [str(node.node), "compile.cjs"],
        cwd=COMPILER,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    output = json.loads(done.stdout)
    problems = [error["formattedMessage"] for error in output.get("errors", ())]
    if problems:
        raise BuildError("\n".join(problems))
    return {name: found for unit in output["contracts"].values() for name, found in unit.items()}


def artifact(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """The committed form of one contract."""
    size = len(found["evm"]["deployedBytecode"]["object"]) // 2
    if size > MAX_CODE_BYTES:
        raise BuildError(f"{name} has {size} bytes of code, more than {MAX_CODE_BYTES}")
    return {
        "contract": name,
        "code_bytes": size,
        "abi": found["abi"],
        "bytecode": "0x" + found["evm"]["bytecode"]["object"],
    }


def outputs() -> dict[Path, str]:
    """Every file of the build with its text."""
    node = find_node()
    version = ensure_compiler(node)
    compiled = compile_sources(node)
    missing = [name for name in CONTRACTS if name not in compiled]
    if missing:
        raise BuildError(f"no contract named {', '.join(missing)}")
    files = {ARTIFACTS / f"{name}.json": _text(artifact(name, compiled[name])) for name in CONTRACTS}
    files |= {RELAYER_ABI / f"{name}.json": _text(compiled[name]["abi"]) for name in RELAYER_CONTRACTS}
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.sol"))}
    record = {"solc": version, "settings": SETTINGS, "sources": fingerprints(sources), "files": fingerprints(files)}
    files[ARTIFACTS / "compiler.json"] = _text(record)
    return files


def fingerprints(texts: dict[Path, str]) -> dict[str, str]:
    """Path in the project -> SHA-256: what was compiled, and what it became, can be compared without a compiler."""
    return {
        path.relative_to(PROJECT).as_posix(): hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()
    }


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the committed files differ")
    options = parser.parse_args(arguments)
    try:
        files = outputs()
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        sys.stdout.write(f"{'differs:' if options.check else 'wrote'} {path.relative_to(PROJECT)}\n")
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path])
    sys.stdout.write(f"{len(files)} files, {len(stale)} {'different' if options.check else 'written'}\n")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
