"""The pages of docs/ that are made from code: the state tables and the settings. `relayer_docs` writes or compares them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from requests_app.admin.explain import REASONS, STATUS_MEANING
from requests_app.management.delivery_document import delivery_lines
from requests_app.management.intent_document import intent_lines
from requests_app.management.setting_texts import INTERNAL, TEXTS
from requests_app.runtime import REGISTRY, Type
from requests_app.states import (
    DEADLINE_SETTING,
    FINAL,
    INITIAL,
    REQUEST_KINDS,
    TRANSITIONS,
    V1_HTTP_STATUS,
    Status,
    Transition,
)

SOURCE_FOLDERS = ("relayer_site", "requests_app", "workers")
_READERS = frozenset({"text", "number", "seconds", "flag", "items", "document", "entries", "pairs", "database_url"})
_MADE = "<!-- Made by `manage.py relayer_docs` from {source}; a test compares. Edit the source. -->"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that the environment may give: its name, and its default as the code writes it."""

    name: str
    default: str
    kind: str


def pages(root: Path) -> dict[Path, str]:
    """Every generated page by its path."""
    return {
        root / "docs" / "states.md": states_page(),
        root / "docs" / "settings.md": settings_page(root),
        root / "docs" / "reasons.md": reasons_page(),
        root / "docs" / "runtime.md": runtime_page(),
    }


def states_page() -> str:
    """The state machines: picture, states, transitions of requests and of payments."""
    lines = ["# States of a request", "", _MADE.format(source="requests_app/states.py"), "", *_diagram(), ""]
    lines += ["## States", "", "| State | Meaning | Deadline setting | v1 GET | Final |", "|---|---|---|---|---|"]
    for status in Status:
        setting = DEADLINE_SETTING.get(status)
        lines.append(
            f"| `{status}` | {STATUS_MEANING[status]} | {f'`{setting}`' if setting else '–'} "
            f"| {V1_HTTP_STATUS[status]} | {'yes' if status in FINAL else 'no'} |"
        )
    lines += ["", "New requests start in: " + ", ".join(f"{k.slug} `{INITIAL[k]}`" for k in REQUEST_KINDS) + ".", ""]
    lines += [
        "## Transitions",
        "",
        "Every one is a guarded UPDATE that names its source states and writes a row of `req_transition`.",
        "",
    ]
    lines += ["| Verb | From | To | Who | Fence | Writes | Why |", "|---|---|---|---|---|---|---|"]
    for row in TRANSITIONS.values():
        sources = ", ".join(f"`{s}`" for s in Status if s in row.sources)
        actors = ", ".join(sorted(row.actors))
        writes = ", ".join(f"`{column}`" for column in row.writes)
        lines.append(
            f"| `{row.verb}` | {sources} | `{row.target}` | {actors} | {_fences(row)} | {writes} | {row.meaning} |"
        )
    return "\n".join([*lines, *intent_lines(), *delivery_lines()]) + "\n"


def _fences(row: Transition) -> str:
    """What proves the decision, by who takes it where that differs."""
    if len({fence for _, fence in row.fences}) == 1:
        return row.fences[0][1].value
    return ", ".join(f"{fence} ({actor})" for actor, fence in row.fences)


def _diagram() -> list[str]:
    edges = [f"    [*] --> {status}" for status in sorted({status.value for status in INITIAL.values()})]
    for row in TRANSITIONS.values():
        edges += [f"    {source} --> {row.target}: {row.verb}" for source in Status if source in row.sources]
    edges += [f"    {status} --> [*]" for status in Status if status in FINAL]
    return ["```mermaid", "stateDiagram-v2", *edges, "```"]


def reasons_page() -> str:
    """Why a request may stop for a person."""
    lines = ["# Why a request needs review", "", _MADE.format(source="requests_app/admin/explain.py"), ""]
    for code, words in REASONS.items():
        lines += [f"## {words.headline}", "", f"Reason code `{code}`. {words.happened}", "", "Look at:", ""]
        lines += [f"- {point}" for point in words.look_at]
        lines += ["", f"What usually follows: {words.usually}", ""]
    return "\n".join(lines)


def runtime_page() -> str:
    """Every runtime setting with type, range and meaning."""
    lines = ["# Runtime settings", "", _MADE.format(source="requests_app/runtime.py"), ""]
    lines += [
        "Changed while everything runs: `manage.py relayer_setting list|set|history`, on the desk under Runtime settings, and (those",
        "marked) over `/admin/config`. Every process follows within 5 s; every change is kept with who, when, why, before and after.",
        "",
        "| Name | Type | Range | Default | `/admin/config` | Meaning |",
        "|---|---|---|---|---|---|",
    ]
    for parameter in REGISTRY.values():
        whole = parameter.type is not Type.F32
        low, high = (int(bound) if whole else bound for bound in (parameter.low, parameter.high))
        offered = f"`{parameter.pascal}`" if parameter.http else "–"
        lines.append(
            f"| `{parameter.name}` | {parameter.type} | {low} to {high} | `{parameter.default}` | {offered} | {parameter.meaning} |"
        )
    return "\n".join(lines) + "\n"


def settings_page(root: Path) -> str:
    """Every setting with its default and meaning, grouped. Raises KeyError for one without a text."""
    found = {setting.name: setting for setting in find_settings(root)}
    lines = [
        "# Settings",
        "",
        _MADE.format(source="the code that reads them and requests_app/management/setting_texts.py"),
        "",
        "All are environment variables (or lines of `.env`). `NAME_FILE` may name a file with the value instead, for secrets.",
        "With no setting at all the embedded PostgreSQL and the local devnet are used; values of the devnet's deployment file",
        "are the defaults of the chain settings.",
    ]
    for group, texts in TEXTS.items():
        lines += ["", f"## {group}", "", "| Setting | Default | Meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {_default(found[name])} | {text} |" for name, text in texts.items()]
    return "\n".join(lines) + "\n"


def _default(setting: Setting) -> str:
    text = setting.default.replace("|", "\\|")
    if text.startswith("from the deployment file"):
        return text
    return f"`{text}`" if text and text not in {"''", '""', "[]"} else "–"


def undocumented(root: Path) -> tuple[set[str], set[str]]:
    """(settings that the code reads and no text describes, texts of settings that no code reads)."""
    read = {setting.name for setting in find_settings(root)}
    described = {name for texts in TEXTS.values() for name in texts}
    return read - described - INTERNAL, described - read


def find_settings(root: Path) -> Iterator[Setting]:
    """Every environment variable that the product's code reads, found in its syntax."""
    seen: set[str] = set()
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            if "devnet" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                setting = _reading(node)
                if setting is not None and setting.name not in seen:
                    seen.add(setting.name)
                    yield setting


def _reading(node: ast.AST) -> Setting | None:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    name = node.args[0]
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isupper()):
        return None
    owner = ast.unparse(node.func.value)
    if owner == "env" and node.func.attr in _READERS:
        return Setting(name.value, _shown(node), node.func.attr)
    if owner == "os.environ" and node.func.attr == "get":
        return Setting(name.value, _shown(node), "text")
    return None


def _shown(call: ast.Call) -> str:
    """The default when it is a plain value; expressions come from the deployment file or the machine and are not shown."""
    if len(call.args) < 2:
        return ""
    default = call.args[1]
    try:
        value = ast.literal_eval(default)
    except ValueError:
        return _fallback(default)
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return str(value)


def _fallback(node: ast.expr) -> str:
    """The constant inside `mapping.get(key, constant)` or a product of numbers, else nothing."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "get":
            try:
                value = ast.literal_eval(part.args[1]) if len(part.args) > 1 else ""
            except ValueError:
                return ""
            return "from the deployment file" + (f", else {value}" if value not in ("", 0, [], None) else "")
    if isinstance(node, ast.BinOp):
        return ast.unparse(node)
    return ""
