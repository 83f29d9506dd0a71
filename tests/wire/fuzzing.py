"""The parts around a schemathesis run: its environment, its input, what it saw, and directed requests for the rarest answers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from requests_app.states import Kind
from tests.stack.harness import ROOT
from tests.wire.client import Client
from tests.wire.world import SOFT_LIMIT, World
from workers.devnet.traffic import FORMS, PATHS

FUZZ = ROOT / "tests" / "fuzz"
CHECKS = (
    "status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,"
    "ignored_auth,allow_header_conformance,only_server_errors_of_the_contract"
)
# Every route needs one of these.
TABLES = ("request_client", "published_key")
Seen = Counter[tuple[str, str, int]]


def tool() -> Path:
    """schemathesis of the pinned version in an environment of its own (RELAYER_FUZZ_VENV), installed when it is missing."""
    home = Path(os.environ.get("RELAYER_FUZZ_VENV", ROOT / "var" / "fuzz"))
    wanted = hashlib.sha256((FUZZ / "requirements.txt").read_bytes()).hexdigest()
    stamp = home / ".installed"
    if not (stamp.exists() and stamp.read_text() == wanted):
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(FUZZ / "requirements.txt")], check=True)
        stamp.write_text(wanted)
    return home / "bin" / "schemathesis"


def run(
    world: World, jobs: Mapping[str, list[str]], seconds: int, directory: Path
) -> tuple[subprocess.CompletedProcess[str], Seen]:
    """One run of `seconds`; its end and what it saw: (method, path, status) -> times."""
    bodies = {form: [world.draft(form).body for _ in range(4)] for form in FORMS}
    by_path = {PATHS[form][0]: made for form, made in bodies.items()}
    for form, made in bodies.items():
        by_path.setdefault(f"/v1/{PATHS[form][1]}", []).extend(made)
    given, log = directory / "input.json", directory / "exchanges.jsonl"
    given.write_text(json.dumps({"bodies": by_path, "jobs": jobs}))
    line = [
        *(str(tool()), "run", str(ROOT / "docs" / "openapi.json"), "--url", world.stack.url),
        *("-H", f"x-api-key: {world.stack.api_key}", "--checks", CHECKS, "--max-time", str(seconds)),
        *("--workers", "2", "--no-color", "--continue-on-failure", "--generation-database", "none"),
        *("--request-timeout", "30", "--warnings", "off", "--suppress-health-check", "all"),
    ]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "hooks",
        "PYTHONPATH": str(FUZZ),
        "FUZZ_INPUT": str(given),
        "FUZZ_LOG": str(log),
    }
    done = subprocess.run(
        line, env=environment, cwd=directory, capture_output=True, text=True, timeout=2 * seconds + 120
    )
    seen: Seen = Counter()
    for text in log.read_text().splitlines():
        exchange = json.loads(text)
        if exchange["method"] == exchange["operation"]:
            seen[exchange["method"], exchange["path"], exchange["status"]] += 1
    return done, seen


def documented() -> set[tuple[str, str, int]]:
    """Every operation with every status that the document promises."""
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
    return {
        (method.upper(), path, int(status))
        for path, operations in paths.items()
        for method, operation in operations.items()
        for status in operation["responses"]
    }


def direct(world: World, missing: set[tuple[str, str, int]], jobs: Mapping[str, list[str]]) -> Seen:
    """Requests for statuses that chance did not meet: without a key, full queues, a table that is gone, known and unknown jobs."""
    seen: Seen = Counter()

    def ask(method: str, path: str, client: Client, body: Any = None, job: str = "") -> None:
        response = client.exchange(
            method, path.replace("{job_id}", job), None if body is None else json.dumps(body).encode()
        )
        seen[method, path, response.status] += 1

    bodies: dict[str, Callable[[], Any]] = {}
    for form in FORMS:
        bodies[PATHS[form][0]] = bodies[f"/v1/{PATHS[form][1]}"] = lambda form=form: world.draft(form).body  # type: ignore[misc]
    # GETs first: a POST may cancel what they look at.
    operations = sorted({(method, path) for method, path, _ in missing})
    for method, path in operations:
        body = bodies[path]() if path in bodies else None
        ask(method, path, Client(world.stack.url, None), body, str(uuid4()))
        ask(method, path, world.client, {} if body is not None else None, "no-uuid")
        ask(method, path, world.client, body, str(uuid4()))
        if method == "GET" or "{job_id}" in path:
            for job in [job for kind, known in jobs.items() if kind in path or "/requests/" in path for job in known]:
                ask(method, path, world.client, None, job)
    with full(world):
        for method, path in operations:
            if path in bodies:
                ask(method, path, world.client, bodies[path]())
    with broken(world):
        for method, path in operations:
            ask(method, path, world.client, bodies[path]() if path in bodies else None, str(uuid4()))
    return seen


@contextmanager
def full(world: World) -> Iterator[None]:
    """Every queue is full."""
    with ExitStack() as queues:
        for kind in (Kind.INPUT_PROOF, Kind.PUBLIC_DECRYPT, Kind.USER_DECRYPT):
            queues.enter_context(world.filled("send", kind.value, SOFT_LIMIT))
        yield


@contextmanager
def broken(world: World) -> Iterator[None]:
    """The database lacks two tables for a moment, as after a migration gone wrong."""
    with world.stack.database() as conn:
        for table in TABLES:
            conn.execute(f"ALTER TABLE {table} RENAME TO {table}_away")
        try:
            yield
        finally:
            for table in TABLES:
                conn.execute(f"ALTER TABLE {table}_away RENAME TO {table}")


def posts(seen: Seen) -> tuple[int, int]:
    """How many POSTs of requests there were, and how many of them were accepted."""
    routes = {path for paths in PATHS.values() for path in (paths[0], f"/v1/{paths[1]}")}
    made = {key: times for key, times in seen.items() if key[0] == "POST" and key[1] in routes}
    return sum(made.values()), sum(times for key, times in made.items() if key[2] == 202)
