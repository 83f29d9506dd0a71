"""A reset says what it forgets before it does, and afterwards."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import call_command

from workers.devnet.layout import Layout


def command(*words: str) -> dict[str, Any]:
    answer = StringIO()
    call_command("relayer_devnet", "reset", "--json", *words, stdout=answer)
    found: dict[str, Any] = json.loads(answer.getvalue())
    return found


def test_a_dry_run_names_what_a_reset_forgets(settings: object, tmp_path: Path) -> None:
    settings.RELAYER_VAR = tmp_path  # type: ignore[attr-defined]
    home = Layout(tmp_path).home
    (home / "tmp" / "deep").mkdir(parents=True)
    for name in ("gateway-state.json", "kms-cursor.json", "bots-control.json", "deployment.json", "ports.json"):
        (home / name).touch()
    said = command("--dry-run")
    assert said["dry_run"]
    assert all(Path(path).exists() for path in said["forgotten"])
    assert command()["forgotten"] == said["forgotten"]
    assert [path.name for path in home.iterdir()] == ["ports.json"], "the addresses stay"
    assert command()["forgotten"] == []
