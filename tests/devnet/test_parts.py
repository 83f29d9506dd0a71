"""Starting the parts: tools, ports, commands, their failures and their ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from requests_app.sockets import is_free
from tests.devnet.conftest import ROOT, layout_at, process
from tests.installing import tools
from workers.devnet import toolchain
from workers.devnet.layout import Layout


def part(var: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A part run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "workers.devnet", *arguments],
        env={**os.environ, "RELAYER_VAR": str(var)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_ports_are_kept(tmp_path: Path) -> None:
    first = Layout(tmp_path).ports()
    assert len({first.gateway, first.host, first.storage}) == 3
    assert Layout(tmp_path).ports() == Layout(tmp_path).ports(renew=True) == first


def test_only_a_start_replaces_a_taken_port(tmp_path: Path) -> None:
    first = Layout(tmp_path).ports()
    with socket.socket() as other:
        other.bind(("127.0.0.1", first.host))
        other.listen()
        assert not is_free(first.host)
        assert Layout(tmp_path).ports() == first
        renewed = Layout(tmp_path).ports(renew=True)
    assert renewed.host != first.host
    assert (renewed.gateway, renewed.storage) == (first.gateway, first.storage)


def test_ports_from_the_environment_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVNET_GATEWAY_PORT", "12345")
    assert Layout(tmp_path).ports().gateway == 12345


def test_node_of_the_wheel_when_the_machine_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = toolchain.find_node()
    # Whether this interpreter's own scripts or an environment's: never the machine's.
    assert found.node.parent == found.npm.parent
    done = subprocess.run([str(found.node), "--version"], env=found.environment(), capture_output=True, text=True)
    assert done.stdout.startswith("v")


def test_no_node_at_all_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(toolchain.shutil, "which", lambda *_, **__: None)
    with pytest.raises(toolchain.ToolchainError, match=r"no Node\.js"):
        toolchain.find_node()


def test_the_second_look_for_anvil_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    var = tools().parent
    binary = toolchain.anvil_binary(var)
    monkeypatch.setattr(toolchain.subprocess, "run", None)
    assert toolchain.anvil_binary(var) == binary


def test_prepare_by_command(settings: object, tmp_path: Path) -> None:
    settings.RELAYER_VAR = layout_at(tmp_path).var  # type: ignore[attr-defined]
    answer = StringIO()
    call_command("relayer_devnet", "prepare", "--json", stdout=answer)
    found = json.loads(answer.getvalue())
    assert found["gateway"] == Layout(tmp_path).ports().gateway
    assert Path(found["anvil"]).is_file()


def test_a_failure_by_command_is_a_sentence(settings: object, tmp_path: Path) -> None:
    settings.RELAYER_VAR = tmp_path  # type: ignore[attr-defined]
    with pytest.raises(CommandError, match="no chain at http"):
        call_command("relayer_devnet", "deploy", "--wait", "0.1")


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    layout = layout_at(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", layout.ports().gateway))
        other.listen()
        done = part(tmp_path, "anvil", "gateway")
    assert (done.returncode, "is taken: set DEVNET_GATEWAY_PORT" in done.stderr) == (1, True)


def test_a_bot_without_a_deployment_gives_up(tmp_path: Path) -> None:
    done = part(tmp_path, "kms", "--wait", "0.2")
    assert (done.returncode, "no deployment" in done.stderr) == (1, True)


@pytest.mark.parametrize("name", ["kms", "coprocessors", "storage"])
def test_sigterm_ends_a_part_at_once(tmp_path: Path, name: str) -> None:
    environment = {**os.environ, "RELAYER_VAR": str(tmp_path)}
    with process(sys.executable, "-m", "workers.devnet", name, environment=environment) as child:
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == -signal.SIGTERM


def test_reset_forgets_chains_but_not_tools(tmp_path: Path) -> None:
    layout = layout_at(tmp_path)
    ports = layout.ports()
    for path in (layout.state("gateway"), layout.deployment, layout.cursor("kms"), layout.control):
        path.write_text("{}")
    assert part(tmp_path, "reset").returncode == 0
    assert sorted(path.name for path in layout.home.iterdir()) == ["ports.json", "ports.lock"]
    assert (layout.ports(), (tmp_path / "node").exists()) == (ports, True)
