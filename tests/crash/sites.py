"""Which places of the product commit something or call a chain, and which crash points stand around them: read from the source.

A *commit site* is a statement that writes (its SQL says so), or a `with conn.transaction()` block; inside a block single statements
are no sites. A *call site* is a call on a chain client. A site is covered when `crash_point("before_x")` stands before it and
`crash_point("after_x")` after it in the same function; for a block the first one stands inside it, before its end. A function
whose sites are not covered passes them on to its callers; what reaches nobody is a hole.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCOPE = ("workers/*.py", "workers/cluster/*.py", "workers/duties/*.py", "requests_app/store/*.py", "requests_app/transitions/*.py",
         "requests_app/services*.py", "requests_app/api/*.py", "requests_app/api/v*/*.py")  # fmt: skip
# What the attributes and variables that hold objects are called, and where their classes live.
OBJECTS = {
    "_blocks": "workers.blocks", "blocks": "workers.blocks", "_applier": "workers.apply", "applier": "workers.apply",
    "leases": "workers.leases", "_keeper": "workers.leases", "keeper": "workers.leases", "_reader": "workers.facts",
    "_listener": "workers.listener", "listener": "workers.listener", "_pool": "workers.signers", "duty": "workers.duties.deadlines",
}  # fmt: skip
FETCHERS = {"run", "fetch_all", "fetch_one", "fetch_only"}
CHAIN_OWNERS = {"gateway", "_gateway", "endpoints", "endpoint", "protocol", "_node"}
NOT_A_CALL = {"close", "read", "send", "usable"}
WRITES = re.compile(
    r"\b(INSERT\s+INTO|DELETE\s+FROM|UPDATE\s+(?!OF\b)[\w{}]+\s+(AS\s+)?\w*\s*SET|UPDATE\s+[\w{}]+\s+SET|ensure_envelope_band)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Span:
    """Lines of a block or a call, first and last."""

    first: int
    last: int


@dataclass
class Function:
    """What one function does."""

    module: str
    name: str
    points: list[tuple[str, int]] = field(default_factory=list)
    blocks: list[Span] = field(default_factory=list)
    fenced: list[Span] = field(
        default_factory=list
    )  # blocks of a transaction that a context manager of ours opens and points
    writes: list[tuple[str, Span]] = field(default_factory=list)
    rpcs: list[tuple[str, Span]] = field(default_factory=list)
    calls: list[tuple[str, str, Span]] = field(default_factory=list)  # module or "", name, where

    @property
    def key(self) -> tuple[str, str]:
        return self.module, self.name

    def covered(self, span: Span, *, block: bool = False) -> bool:
        """Whether a pair of points stands around the span."""
        first = {name[7:]: line for name, line in self.points if name.startswith("before_")}
        last = {name[6:]: line for name, line in self.points if name.startswith("after_")}
        return any(
            (line <= span.last if block else line < span.first)
            and last.get(what, 0) > (span.last if block else span.first)
            for what, line in first.items()
        )

    def within_block(self, span: Span) -> bool:
        return any(block.first <= span.first and span.last <= block.last for block in [*self.blocks, *self.fenced])


Sites = dict[tuple[str, str], list[tuple[Function, Span]]]
"""Of each function, (module, name): who calls it, and where."""


@cache
def writing_statements() -> set[tuple[str, str]]:
    """(topic, name) of every named statement that changes something."""
    found = set()
    for path in sorted((ROOT / "requests_app" / "sql").glob("*.sql")):
        parts = re.split(r"^-- name: (\w+)\s*$", path.read_text(), flags=re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            code = re.sub(r"--.*", "", text)
            if WRITES.search(code):
                found.add((path.stem, name))
    return found


def functions(edited: Mapping[str, str] | None = None) -> dict[tuple[str, str], Function]:
    """Every function of the scope by (module, name); methods by their bare name."""
    found: dict[tuple[str, str], Function] = {}
    for pattern in SCOPE:
        for path in sorted(ROOT.glob(pattern)):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.update(_functions_of(module, (edited or {}).get(module) or path.read_text()))
    return found


@cache  # of a scope that is asked for again and again one module is edited
def _functions_of(module: str, text: str) -> dict[tuple[str, str], Function]:
    tree = ast.parse(text)
    imports = {**_imports(tree), **_tables(tree)}
    found: dict[tuple[str, str], Function] = {}
    for node in _defs(tree):
        function = _read(module, node, imports, writing_statements())
        found[function.key] = _merged(found.get(function.key), function)
    return found


@cache
def crash_point_names() -> list[tuple[str, str]]:
    """(name, place) of every `crash_point` call with a constant name in the product."""
    found = []
    for top in ("workers", "requests_app"):
        for path in sorted((ROOT / top).rglob("*.py")):
            text = path.read_text()
            if "crash_point(" not in text:
                continue
            tree = ast.parse(text)
            calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
            place = path.relative_to(ROOT)
            for call in (call for call in calls if _name(call.func) == "crash_point"):
                found += [(name, f"{place}:{call.lineno}") for name in _written_out(_point(call), call, tree)]
    return found


def _written_out(name: str, call: ast.Call, tree: ast.Module) -> list[str]:
    """The names of a point; what is put in at run time is a variable whose values stand in a dictionary of the module."""
    if "*" not in name:
        return [name]
    (text,) = call.args
    assert isinstance(text, ast.JoinedStr)
    (variable,) = [_name(part.value) for part in text.values if isinstance(part, ast.FormattedValue)]
    values = [
        str(value.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _name(node.targets[0]) == variable and isinstance(node.value, ast.Subscript)
        for value in getattr(node.value.value, "values", ())
    ]
    assert values, f"{name}: the values of {variable} are not written out"
    return [name.replace("*", value) for value in values]


def _point(call: ast.Call) -> str:
    """The name of a point; what is put in at run time shows as *."""
    (name,) = call.args
    if isinstance(name, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in name.values)
    assert isinstance(name, ast.Constant), ast.dump(name)
    return str(name.value)


def holes(edited: Mapping[str, str] | None = None) -> list[str]:
    """Commits and chain calls without points around them, where nobody who calls has any either."""
    known = functions(edited)
    calls = _sites(known)
    exposed: dict[tuple[str, str], list[str]] = {}
    for key, function in known.items():
        own = [
            f"commit of {what}"
            for what, span in function.writes
            if not (function.within_block(span) or function.covered(span))
        ]
        own += [f"call of {what}" for what, span in function.rpcs if not function.covered(span)]
        own += ["transaction" for span in function.blocks if not function.covered(span, block=True)]
        if own:
            exposed[key] = [f"{key[0]}.{key[1]}: {text}" for text in own]
    return sorted(
        text for key, texts in exposed.items() for text in texts if _reaches(calls, key, "call of" in text, {key})
    )


def _sites(known: dict[tuple[str, str], Function]) -> Sites:
    found: Sites = {}
    for function in known.values():
        for module, name, span in function.calls:
            found.setdefault((module or function.module, name), []).append((function, span))
    return found


def _reaches(calls: Sites, key: tuple[str, str], rpc: bool, seen: set[tuple[str, str]]) -> bool:
    """Whether somebody can come to this function without passing points. A transaction covers commits, not chain calls."""
    sites = calls.get(key, [])
    if not sites:
        # A store function that nobody of the scope calls belongs to the operator's commands.
        return not key[0].startswith("requests_app.store")
    bare = {f.key for f, span in sites if not f.covered(span) and (rpc or not f.within_block(span))}
    if not bare - seen:
        return len(bare) == len({f.key for f, _ in sites})
    return any(_reaches(calls, caller, rpc, seen | {caller}) for caller in bare - seen)


def _defs(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from (item for item in node.body if isinstance(item, ast.FunctionDef))


def _imports(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Local name -> (module, name); name "" for a module."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = ROOT / Path(*f"{node.module}.{alias.name}".split(".")).with_suffix(".py")
                target = (f"{node.module}.{alias.name}", "") if full.exists() else (node.module, alias.name)
                found[alias.asname or alias.name] = target
    return found


def _tables(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Module-level dictionaries of functions, as ("", "f g h"): who looks into one calls them all."""
    found: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Dict):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            names = [value.id for value in node.value.values if isinstance(value, ast.Name)]
            if names and isinstance(target, ast.Name):
                found[target.id] = ("", " ".join(names))
    return found


def _read(
    module: str, node: ast.FunctionDef, imports: dict[str, tuple[str, str]], writing: set[tuple[str, str]]
) -> Function:
    function = Function(module, node.name)
    topics = {topic for topic, _ in writing}
    for part in ast.walk(node):
        if isinstance(part, ast.With):
            names = {_name(item.context_expr.func) for item in part.items if isinstance(item.context_expr, ast.Call)}
            function.blocks += [_span(part)] * ("transaction" in names)
            function.fenced += [_span(part)] * ("_fenced" in names)
        if (
            isinstance(part, ast.Attribute)
            and isinstance(part.value, ast.Name)
            and imports.get(part.value.id, ("", "x"))[1] == ""
        ):
            # Called here, or handed to somebody who calls it.
            function.calls.append((imports[part.value.id][0], part.attr, _span(part)))
        if isinstance(part, ast.Name) and imports.get(part.id, ("x", ""))[0] == "":
            function.calls += [("", name, _span(part)) for name in imports[part.id][1].split()]
        if not isinstance(part, ast.Call):
            continue
        owner, name = _owner(part.func), _name(part.func)
        texts = [arg.value for arg in part.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if name == "crash_point":
            function.points.append((_point(part), part.lineno))
        elif name in FETCHERS and len(texts) >= 2 and (texts[0], texts[1]) in writing:
            function.writes.append((f"{texts[0]}.{texts[1]}", _span(part)))
        elif (
            name.startswith("_")
            and texts
            and module.rsplit(".", 1)[1] in topics
            and (module.rsplit(".", 1)[1], texts[0]) in writing
        ):
            function.writes.append((f"{module.rsplit('.', 1)[1]}.{texts[0]}", _span(part)))
        elif CHAIN_OWNERS & set(owner) and name not in NOT_A_CALL and not module.startswith("workers.chain"):
            function.rpcs.append((".".join([*owner, name]), _span(part)))
        function.calls += _callee(part, owner, name, imports)
    return function


def _callee(
    part: ast.Call, owner: list[str], name: str, imports: dict[str, tuple[str, str]]
) -> list[tuple[str, str, Span]]:
    if not owner:
        target, inner = imports.get(name, ("", name))
        return [(target, inner or name, _span(part))]
    if owner == ["self"]:
        return [("", name, _span(part))]
    module = OBJECTS.get(owner[-1])
    return [(module, name, _span(part))] if module else []


def _span(node: ast.AST) -> Span:
    return Span(node.lineno, node.end_lineno or node.lineno)  # type: ignore[attr-defined]


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _owner(node: ast.expr) -> list[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        node = node.value
        if isinstance(node, ast.Call):
            node = node.func
        parts.append(_name(node))
    return parts[::-1]


def _merged(old: Function | None, new: Function) -> Function:
    if old is None:
        return new
    for field_name in ("points", "blocks", "fenced", "writes", "rpcs", "calls"):
        getattr(old, field_name).extend(getattr(new, field_name))
    return old
