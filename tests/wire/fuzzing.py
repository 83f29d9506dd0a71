"""The parts around a schemathesis run: its input, what it saw, and directed requests for the rarest answers."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from requests_app.states import Kind
from requests_app.store.publish import WAITING_AT_MOST
from tests.installing import FUZZ, ROOT, schemathesis
from tests.wire import paying, telling
from tests.wire.client import Client, Response
from tests.wire.world import SOFT_LIMIT, World
from workers.devnet.traffic import FORMS, PATHS, Form

CHECKS = (
    "status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,"
    "ignored_auth,allow_header_conformance,only_server_errors_of_the_contract"
)
# Every route needs one of these, unless it remembers the key it was called with.
TABLES = ("client_account", "published_key")
NOWHERE = "postgres://nobody@127.0.0.1:9/nothing"  # nobody listens there
PUBLISH = "/v1/envelopes"
PUBLICATION = {"topic": "0x66757a7a", "payload": "0x00"}
Seen = Counter[tuple[str, str, int]]


def run(
    world: World, jobs: Mapping[str, list[str]], seconds: int, directory: Path
) -> tuple[subprocess.CompletedProcess[str], Seen]:
    """One run of `seconds`; its end and what it saw: (method, path, status) -> times."""
    bodies = {form: [world.draft(form).body for _ in range(4)] for form in FORMS}
    by_path = {PATHS[form][0]: made for form, made in bodies.items()}
    for form, made in bodies.items():
        by_path.setdefault(f"/v1/{PATHS[form][1]}", []).extend(made)
    by_path[PUBLISH] = [PUBLICATION]
    by_path[paying.PATH] = [paying.terms(world)]
    by_path[telling.PATH] = [telling.WANTED]
    given, log = directory / "input.json", directory / "exchanges.jsonl"
    given.write_text(json.dumps({"bodies": by_path, "jobs": jobs}))
    line = [
        *(str(schemathesis()), "run", str(ROOT / "docs" / "openapi.json"), "--url", world.stack.url),
        *("-H", f"x-api-key: {world.stack.api_key}", "--checks", CHECKS, "--max-time", str(seconds)),
        *("--workers", "1", "--no-color", "--continue-on-failure", "--generation-database", "none"),
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
        line, env=environment, cwd=directory, capture_output=True, text=True, timeout=2 * seconds + 240
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


class Direct:
    """Requests for statuses that chance did not meet, at every operation that lacks one."""

    def __init__(self, world: World, missing: set[tuple[str, str, int]], jobs: Mapping[str, list[str]]) -> None:
        self._world, self._jobs = world, jobs
        self._operations = sorted({(method, path) for method, path, _ in missing})
        self._bodies: dict[str, Callable[[], Any]] = {
            PUBLISH: lambda: dict(PUBLICATION),
            paying.PATH: partial(paying.terms, world),
            paying.AUTHORIZE: lambda: dict(paying.UNSIGNED),
            telling.PATH: lambda: dict(telling.WANTED),
            telling.ONE: dict,
        }
        for form in FORMS:
            made = partial(self._draft, form)
            self._bodies[PATHS[form][0]] = self._bodies[f"/v1/{PATHS[form][1]}"] = made
        self.seen: Seen = Counter()

    def run(self, fresh: Client, cut_off: Client) -> Seen:
        """Without a key, with ids that are known, unknown and none, with full queues, with tables or the whole database away.

        `fresh`: of a web server that nobody has asked yet, so that it knows no keys; `cut_off`: of one whose database is NOWHERE.
        """
        everybody = self._world.client
        for method, path in self._operations:
            self._ask(method, path, Client(self._world.stack.url, None))
            self._ask(method, path, everybody, job="no-uuid", body={})
            self._ask(method, path, everybody)
            known = [job for kind, ids in self._jobs.items() if kind in path or "/requests/" in path for job in ids]
            for job in known if "{job_id}" in path else ():
                self._ask(method, path, everybody, job=job)
        with full(self._world):
            self._each(everybody)
        fresh.wait_alive()
        with broken(self._world):
            self._each(fresh)
        cut_off.wait_alive()
        self._each(cut_off)
        published = self._ask("POST", PUBLISH, everybody).headers["location"].rsplit("/", 1)[1]
        self._ask("GET", PUBLISH + "/{job_id}", everybody, job=published)
        with idle_publisher(self._world):
            job = self._ask("POST", PUBLISH, everybody).headers["location"].rsplit("/", 1)[1]
            self._ask("GET", PUBLISH + "/{job_id}", everybody, job=job)
            with staged(self._world):
                self._ask("POST", PUBLISH, everybody)
        self.seen.update(paying.every_answer(self._world))
        self.seen.update(telling.every_answer(self._world))
        return self.seen

    def _each(self, client: Client) -> None:
        """Every operation at once: with the database away each of them takes its time."""
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda operation: self._ask(*operation, client), self._operations))

    def _ask(self, method: str, path: str, client: Client, *, job: str = "", body: Any = None) -> Response:
        if path in self._bodies:
            body = self._bodies[path]() if body is None else body
        raw = None if method == "GET" or path not in self._bodies else json.dumps(body).encode()
        query = "?limit=x" if job == "no-uuid" and "{job_id}" not in path else ""
        place = path.replace("{job_id}", job or str(uuid4())).replace("{intent_id}", job or "pi_" + "0" * 24)
        place = place.replace("{webhook_id}", job or "wh_" + "0" * 24)
        headers = {"Idempotency-Key": str(uuid4())} if path == paying.PATH else {}
        response = client.exchange(method, place + query, raw, headers)
        self.seen[method, path, response.status] += 1
        return response

    def _draft(self, form: Form) -> Any:
        return self._world.draft(form).body


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


@contextmanager
def idle_publisher(world: World) -> Iterator[None]:
    """Nothing that is staged gets into the log: the publisher passes over a head that somebody holds."""
    with world.stack.database() as conn, conn.transaction():
        conn.execute("SELECT last FROM publisher_head FOR UPDATE")
        yield


@contextmanager
def staged(world: World) -> Iterator[None]:
    """As much is staged as may be."""
    with world.stack.database() as conn:
        conn.execute(
            "INSERT INTO staged_envelope (ext_id, client_id, topic, payload, staged_at, attempts)"
            " SELECT gen_random_uuid(), (SELECT min(id) FROM client_account), 'filler', '', clock_timestamp(), 0"
            " FROM generate_series(1, %s)",
            (WAITING_AT_MOST,),
        )
        try:
            yield
        finally:
            conn.execute("DELETE FROM staged_envelope WHERE topic = 'filler'")


def posts(seen: Seen) -> tuple[int, int]:
    """How many POSTs of requests there were, and how many of them were accepted."""
    routes = {path for paths in PATHS.values() for path in (paths[0], f"/v1/{paths[1]}")}
    made = {key: times for key, times in seen.items() if key[0] == "POST" and key[1] in routes}
    return sum(made.values()), sum(times for key, times in made.items() if key[2] == 202)
