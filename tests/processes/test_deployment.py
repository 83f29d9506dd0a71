"""Procfile, compose.yaml and Dockerfile say the same, and name what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
OF_IMAGES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD_FILE"}
OF_LIBRARIES = {"PROMETHEUS_MULTIPROC_DIR"}


def services() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return dict(document["services"])


def procfile() -> dict[str, tuple[dict[str, str], str]]:
    """Name -> environment and command."""
    found = {}
    for line in (ROOT / "Procfile").read_text().splitlines():
        name, _, text = line.partition(": ")
        words = text.split(" ")
        given = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        found[name] = (given, " ".join(word for word in words if not re.match(r"[A-Z_]+=", word)))
    return found


def test_compose_runs_the_programs_of_the_procfile() -> None:
    found = {name: service for name, service in services().items() if name != "database"}
    wanted = procfile()
    assert {name: service["command"] for name, service in found.items()} == {
        name: command for name, (_, command) in wanted.items()
    }
    for name, (environment, _) in wanted.items():
        assert environment.items() <= found[name]["environment"].items()


def test_compose_names_only_settings_that_exist() -> None:
    documented = (ROOT / "docs" / "settings.md").read_text()
    names = {name for service in services().values() for name in service.get("environment", {})}
    unknown = {
        name
        for name in names - OF_IMAGES - OF_LIBRARIES
        if f"`{name.removesuffix('_FILE')}`" not in documented and name != "RELAYER_ROLE"
    }
    assert unknown == set()


def test_every_secret_is_declared() -> None:
    document = yaml.safe_load((ROOT / "compose.yaml").read_text())
    used = {name for service in document["services"].values() for name in service.get("secrets", ())}
    assert used == set(document["secrets"])


def test_the_image_holds_what_the_programs_need() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M) for word in line.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    assert {"manage.py", "relayer_site", "requests_app", "workers", "templates", "contracts"} <= set(copied)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert set(copied) == {line[1:] for line in ignored if line.startswith("!")}
    (command,) = re.findall(r'^CMD \["(.*)"\]$', text, re.M)
    assert command.split('", "') == procfile()["web"][1].split(" ")
