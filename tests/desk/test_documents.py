"""Documents that name code: each name exists, generated pages are up to date, metrics and commands are real."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.core.management import call_command, get_commands
from prometheus_client import Counter, Histogram

from relayer_site.metrics_sql import DatabaseCollector
from requests_app.admin.explain import EVENTS, REASONS, STATUS_MEANING
from requests_app.management.documents import find_settings, pages, undocumented
from requests_app.models.reviews import ReasonCode
from requests_app.states import Status

ROOT = Path(__file__).resolve().parents[2]
HAND_WRITTEN = ("README.md", "docs/architecture.md", "docs/operations.md")
SYMBOL = re.compile(r"`([\w/]+\.(?:py|sql)):(\w+(?:\.\w+)?)`")


def named_symbols() -> list[tuple[str, str]]:
    return sorted({pair for page in HAND_WRITTEN for pair in SYMBOL.findall((ROOT / page).read_text())})


def names_in(path: Path) -> set[str]:
    """Top-level names of a module with the methods of its classes; statement names of an SQL file."""
    text = path.read_text()
    if path.suffix == ".sql":
        return set(re.findall(r"^-- name: (\w+)", text, re.MULTILINE))
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize(("path", "symbol"), named_symbols())
def test_every_named_symbol_exists(path: str, symbol: str) -> None:
    assert (ROOT / path).is_file(), path
    assert symbol in names_in(ROOT / path)


def test_the_way_is_long_enough_to_be_one() -> None:
    assert len(named_symbols()) > 40


def test_links_between_pages_lead_somewhere() -> None:
    for page in HAND_WRITTEN:
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
            if not target.startswith("http"):
                assert ((ROOT / page).parent / target).exists(), (page, target)


def test_generated_pages_are_up_to_date() -> None:
    for path, text in pages(ROOT).items():
        assert path.read_text() == text, f"{path.name}: run manage.py relayer_docs"


def test_every_setting_has_a_text_and_every_text_a_setting() -> None:
    assert undocumented(ROOT) == (set(), set())
    assert len(list(find_settings(ROOT))) > 40


def test_every_status_and_reason_has_words() -> None:
    assert set(STATUS_MEANING) == set(Status)
    assert set(REASONS) == set(ReasonCode)
    for words in REASONS.values():
        assert words.headline
        assert words.happened
        assert words.look_at
        assert words.usually


def test_every_event_of_the_listener_has_words() -> None:
    from workers.chain.events import EventKind

    assert {kind.value: kind.name.lower().replace("_", " ") for kind in EventKind} == EVENTS


@pytest.mark.django_db
def test_metrics_of_the_operations_page_are_those_of_the_code() -> None:
    from relayer_site import metrics
    from requests_app import metrics as domain

    named = set(re.findall(r"`(relayer_[a-z_]+)(?:\{[a-z_,]+\})?`", (ROOT / "docs/operations.md").read_text()))
    named -= {name for name in named if name in get_commands()}
    database = {family.name for family in DatabaseCollector().collect()}
    http = {f"{metric._name}_total" for metric in (metrics.requests_total, metrics.responses_total)}
    counted = {item for item in vars(domain).values() if isinstance(item, Counter | Histogram)}
    own = {f"{item._name}_total" if isinstance(item, Counter) else item._name for item in counted}
    assert named == database | http | {metrics.request_seconds._name} | own


def test_commands_that_the_documents_name_exist() -> None:
    commands = get_commands()
    for page in HAND_WRITTEN:
        for name in re.findall(r"manage\.py (relayer_[a-z_]+)", (ROOT / page).read_text()):
            assert name in commands, (page, name)


def test_the_project_checks_itself(db: None) -> None:
    call_command("check")
