"""The committed artifacts are what the committed sources compile to."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

BUILD = Path(__file__).resolve().parents[2] / "contracts" / "build.py"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contracts_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nothing_was_changed_since_it_was_compiled(build: ModuleType) -> None:
    """Neither a source nor an artifact nor the settings."""
    record = json.loads((build.ARTIFACTS / "compiler.json").read_text())
    assert record["settings"] == build.SETTINGS
    sources = {path: path.read_text(encoding="utf-8") for path in build.SOURCES.rglob("*.sol")}
    assert record["sources"] == build.fingerprints(sources)
    written = [*build.ARTIFACTS.glob("*.json"), *build.RELAYER_ABI.glob("*.json")]
    files = {path: path.read_text() for path in written if path.name != "compiler.json"}
    assert record["files"] == build.fingerprints(files)


@pytest.mark.full
def test_recompiling_gives_the_committed_files(build: ModuleType) -> None:
    different = [path.name for path, text in build.outputs().items() if path.read_text() != text]
    assert different == []


def test_every_contract_source_is_an_artifact(build: ModuleType) -> None:
    committed = {path.stem for path in build.ARTIFACTS.glob("*.json")} - {"compiler"}
    assert committed == set(build.CONTRACTS)


def test_a_contract_above_the_code_size_limit_is_refused(build: ModuleType) -> None:
    code = {"object": "00" * (build.MAX_CODE_BYTES + 1)}
    with pytest.raises(build.BuildError, match="bytes of code"):
        build.artifact("Huge", {"abi": [], "evm": {"bytecode": code, "deployedBytecode": code}})
