"""Trials in several processes, each with a database of its own: in a common one they would lease each other's jobs."""

from __future__ import annotations

import multiprocessing
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from typing import Any

import psycopg
from django.conf import settings
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connections
from psycopg.sql import SQL, Identifier

from tests.core.rows import insert_account
from tests.model.trial import Outcome, run
from tests.model.world import World, connections_of

PROCESSES = 4  # each of them waits for its database half of the time
_Fork = multiprocessing.get_context("fork")


def trials(
    conn: psycopg.Connection[Any],
    account: int,
    seeds: Sequence[int],
    until: float,
    on_tick: Callable[[World], None] | None = None,
) -> list[Outcome]:
    """These seeds one after the other, as many as there is time for until `until` (monotonic seconds)."""
    found = []
    with connections_of() as idle:
        for seed in seeds:
            if time.monotonic() >= until:
                break
            found.append(run(conn, seed, account, idle=idle, on_tick=on_tick))
    return found


def spread(seeds: Sequence[int], until: float) -> list[Outcome]:
    """As `trials`, in PROCESSES forks of this process. Raises RuntimeError with the traceback of a trial that broke."""
    with _databases() as names:
        work = [
            lambda name=name, mine=seeds[number::PROCESSES]: _try(name, mine, until)
            for number, name in enumerate(names)
        ]
        answers = _in_forks(work)
    return sorted((outcome for answer in answers for outcome in answer), key=lambda outcome: outcome.seed)


def _try(name: str, seeds: Sequence[int], until: float) -> list[Outcome]:
    _use(name)
    with psycopg.connect(**_address(), dbname=name, autocommit=True) as conn:
        return trials(conn, insert_account(conn), seeds, until)


def _migrate(name: str) -> None:
    _use(name)
    ContentType.objects.clear_cache()  # ids of the parent's database
    call_command("migrate", verbosity=0, interactive=False)


def _use(name: str) -> None:
    """In a fork: work in this database from now on."""
    default = connections["default"]
    default.connection = None  # the parent's session, which goes on there
    default.settings_dict["NAME"] = settings.DATABASES["default"]["NAME"] = name


def _in_forks(work: Sequence[Callable[[], Any]]) -> list[Any]:
    """What these return, each called in a fork of its own."""
    running = []
    for one in work:
        mine, theirs = _Fork.Pipe(duplex=False)
        process = _Fork.Process(target=_report, args=(theirs, one), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: the child uses none of them
            process.start()
        theirs.close()
        running.append((process, mine))
    try:
        return [_answer(pipe) for _, pipe in running]
    finally:
        for process, pipe in running:
            process.kill()
            process.join()
            pipe.close()


def _report(pipe: Pipe, work: Callable[[], Any]) -> None:
    try:
        pipe.send((True, work()))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


def _answer(pipe: Pipe) -> Any:
    try:
        good, answer = pipe.recv()
    except EOFError:
        raise RuntimeError("a process of the model check ended without a word") from None
    if not good:
        raise RuntimeError(answer)
    return answer


@contextmanager
def _databases() -> Iterator[list[str]]:
    """Databases like the test's own, beside it: one migrated, the others copied from it."""
    names = [f"{connections['default'].settings_dict['NAME']}_model_{number}" for number in range(PROCESSES)]
    with psycopg.connect(**_address(), dbname="postgres", autocommit=True) as admin:
        for name in names:
            admin.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(name)))
        admin.execute(SQL("CREATE DATABASE {}").format(Identifier(names[0])))
        _in_forks([lambda: _migrate(names[0])])
        for name in names[1:]:
            admin.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(name), Identifier(names[0])))
        try:
            yield names
        finally:
            for name in names:
                admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def _address() -> dict[str, Any]:
    target = connections["default"].settings_dict
    return {"host": target["HOST"], "user": target["USER"], "port": target["PORT"] or None}
