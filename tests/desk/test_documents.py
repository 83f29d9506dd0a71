"""Documents that name code: each name exists, generated pages are up to date, metrics and commands are real."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from django.core.management import BaseCommand, call_command, get_commands, load_command_class
from prometheus_client import Counter, Histogram

from relayer_site.metrics_sql import DatabaseCollector
from requests_app.admin.explain import EVENTS, REASONS, STATUS_MEANING
from requests_app.management.documents import find_settings, pages, undocumented
from requests_app.models.reviews import ReasonCode
from requests_app.states import Status

ROOT = Path(__file__).resolve().parents[2]
MADE = "<!-- Made by "
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
HAND_WRITTEN = tuple(page for page in PAGES if MADE not in (ROOT / page).read_text())
SUB_COMMANDS = [
    ("relayer_account", ["list"]),
    ("relayer_account", ["rotate", "acme"]),
    ("relayer_setting", ["list"]),
    ("relayer_setting", ["history"]),
    ("relayer_envelopes", ["bands"]),
    ("relayer_envelopes", ["rotate-key"]),
]
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


def anchors(path: Path) -> set[str]:
    """What links to the headings of a page are called."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
            if target.startswith("http"):
                continue
            name, _, anchor = target.partition("#")
            path = (ROOT / page).parent / name if name else ROOT / page
            assert path.exists(), (page, target)
            assert not anchor or anchor in anchors(path), (page, target)


def test_every_page_is_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert linked >= set(PAGES) - {"README.md"}


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


COMMAND = re.compile(r"manage\.py (relayer_[a-z_]+)([^`#\n]*)")


def commands_of_the_documents() -> list[tuple[str, str, str]]:
    """(page, command, its words), optional words included."""
    found = [(page, *one) for page in PAGES for one in COMMAND.findall((ROOT / page).read_text())]
    return sorted({(page, name, re.sub(r"[\[\]]", " ", words.split(" > ")[0]).strip()) for page, name, words in found})


@pytest.mark.parametrize(("page", "name", "words"), commands_of_the_documents())
def test_commands_take_what_the_documents_say(page: str, name: str, words: str) -> None:
    if "|" in words or "…" in words.split("--", maxsplit=1)[0]:
        words = ""  # a choice of sub-commands, or only the command is meant
    command = load_command_class(get_commands()[name], name)
    command._called_from_command_line = False
    if words or not requires_words(command, name):
        command.create_parser("manage.py", name).parse_args(shlex.split(words))


def requires_words(command: BaseCommand, name: str) -> bool:
    """Whether the command cannot be given alone."""
    parser = command.create_parser("manage.py", name)
    return any(action.required for action in parser._actions)


def test_json_stands_before_and_after_a_sub_command() -> None:
    for name, words in SUB_COMMANDS:
        command = load_command_class(get_commands()[name], name)
        parser = command.create_parser("manage.py", name)
        for given in ([*words, "--json"], ["--json", *words]):
            assert parser.parse_args(given).json, given
        assert not parser.parse_args(words).json


def test_the_project_checks_itself(db: None) -> None:
    call_command("check")
