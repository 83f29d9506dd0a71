"""Connections, and the ways to run a named statement.

Every store function takes a psycopg connection first. A worker opens its own with `connect`; the web and the admin use
the one under Django's default alias. Both run the same statements with server-side binding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeVar, cast

import msgspec
import psycopg
from django.conf import settings
from django.db import connections
from django.db.transaction import atomic
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import args_row, namedtuple_row

from requests_app import sql
from requests_app.metrics import timed_query
from requests_app.store import arrays

Row = Any  # a named tuple whose fields are the statement's columns
Params = Mapping[str, Any]
Role = Literal["worker", "maintenance"]
T = TypeVar("T")
_NONE: Final[Params] = {}
_JSONB: Final = psycopg.adapters.types["jsonb"].oid

# Workers' statements go by index, whatever the statistics say: those of a queue that was empty a minute ago make the planner
# read a hundred thousand rows to find one.
_BY_INDEX = {"enable_seqscan": "off", "enable_bitmapscan": "off"}
# Design 5.1.8. A holder stopped inside a fenced transaction must let go before its lease can be taken over.
_TIMEOUTS: dict[Role, dict[str, str]] = {
    "worker": {
        "statement_timeout": "10s",
        "lock_timeout": "2s",
        "idle_in_transaction_session_timeout": "5s",
        **_BY_INDEX,
    },
    "maintenance": {
        "statement_timeout": "0",
        "lock_timeout": "200ms",
        "idle_in_transaction_session_timeout": "5s",
    },
}


def connect(role: Role = "worker", *, name: str = "") -> psycopg.Connection[Any]:
    """A new autocommit connection to the default database with the role's timeouts.

    What DATABASE_URL says beside the address (sslmode, sslrootcert, ...) holds here as it does for Django's own connections.
    Dead peers are noticed by TCP keepalives within about 6 s. Raises psycopg.OperationalError when unreachable.
    """
    target = settings.DATABASES["default"]
    connections["default"].get_connection_params()  # starts the embedded server when that is the database
    given = {key: value for key, value in target.get("OPTIONS", {}).items() if key not in ("pool", "prepare_threshold")}
    limits = (f"-c {key}={value}" for key, value in {**_TIMEOUTS[role], "jit": "off"}.items())
    options = " ".join([given.get("options", ""), *limits]).strip()  # of two values of a limit the later one holds
    parameters: dict[str, Any] = {
        "target_session_attrs": "read-write",  # after a fail-over the old address may lead to a server that only reads
        **given,
        "dbname": connections["default"].settings_dict["NAME"],
        "user": target.get("USER") or None,
        "password": target.get("PASSWORD") or None,
        "host": target.get("HOST") or None,
        "port": target.get("PORT") or None,
        "application_name": f"relayer-{name or role}"[:63],
        "options": options,
        "connect_timeout": 5,
        "keepalives_idle": 2,
        "keepalives_interval": 2,
        "keepalives_count": 2,
        "autocommit": True,
        "prepare_threshold": 1,
    }
    conn = psycopg.connect(**{key: value for key, value in parameters.items() if value is not None})
    arrays.install(conn)
    conn.adapters.register_loader("jsonb", JsonReader)
    return conn


def web_connection() -> psycopg.Connection[Any]:
    """The psycopg connection under Django's default alias, inside whatever `atomic()` holds."""
    django_connection = connections["default"]
    django_connection.ensure_connection()
    return cast("psycopg.Connection[Any]", django_connection.connection)


@contextmanager
def snapshot() -> Iterator[None]:
    """Everything that is read within the block through Django's connection is of one moment, and nothing is written.

    Inside of a transaction of the caller's the block is part of that.
    """
    if connections["default"].in_atomic_block:
        yield
        return
    with atomic():
        web_connection().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


@contextmanager
def transaction(conn: psycopg.Connection[Any], *, force_rollback: bool = False) -> Iterator[psycopg.Transaction]:
    """A transaction, or a savepoint in the one that is open, which is committed when the block was left without an error.

    `force_rollback`, also set on what the block gets, undoes it instead: a dry run, or a change of mind.

    psycopg's own block can be left so although nothing was committed: silently when it knows that the connection is broken, and
    when an error in the block was swallowed, because PostgreSQL answers COMMIT with a rollback then. Raises
    psycopg.OperationalError and psycopg.errors.InFailedSqlTransaction in these cases.
    """
    with conn.transaction(force_rollback=force_rollback) as opened:
        yield opened
        failed = conn.info.transaction_status is psycopg.pq.TransactionStatus.INERROR
        if failed and not opened.force_rollback:
            raise psycopg.errors.InFailedSqlTransaction(
                "an error in the block was swallowed: there is nothing to commit"
            )
    if opened.status is psycopg.Transaction.Status.FAILED:
        raise psycopg.OperationalError("the connection was lost before the commit")


class JsonReader(Loader):
    """jsonb to Python, several times as fast as `json`, and exact for integers of any size as that is."""

    def load(self, data: Buffer) -> Any:
        """The value; numbers beyond a double are infinite, as `json` has it."""
        try:
            return msgspec.json.decode(data)
        except msgspec.MsgspecError:
            return json.loads(bytes(data))


def _rows(conn: psycopg.Connection[Any]) -> psycopg.Cursor[Any]:
    """A cursor of named tuples. Django tells its connection to read jsonb as text (its own fields parse it); we do not."""
    cursor = psycopg.Cursor(conn, row_factory=namedtuple_row)
    if conn.adapters.get_loader(_JSONB, psycopg.pq.Format.TEXT) is not JsonReader:
        cursor.adapters.register_loader("jsonb", JsonReader)
    return cursor


def fetch_all(conn: psycopg.Connection[Any], topic: str, name: str, params: Params = _NONE, **parts: str) -> list[Row]:
    """All rows of a named statement, as named tuples."""
    with timed_query(parts.get("table", topic)), _rows(conn) as cursor:
        return list(cursor.execute(sql.statement(topic, name, **parts), params).fetchall())


def fetch_binary(
    conn: psycopg.Connection[Any], topic: str, name: str, params: Params, make: Callable[..., T]
) -> list[T]:
    """All rows of a named statement as `make(*columns)`, sent in the binary format: long bytes cost half as much."""
    with timed_query(topic), psycopg.Cursor(conn, row_factory=args_row(make)) as cursor:
        return list(cursor.execute(sql.statement(topic, name), params, binary=True).fetchall())


def fetch_tuples(
    conn: psycopg.Connection[Any], topic: str, name: str, params: Params, **parts: str
) -> list[tuple[Any, ...]]:
    """All rows of a named statement as plain tuples, sent in the binary format: for many rows of numbers."""
    with timed_query(topic), psycopg.Cursor(conn) as cursor:
        return cursor.execute(sql.statement(topic, name, **parts), params, binary=True).fetchall()


def fetch_one(conn: psycopg.Connection[Any], topic: str, name: str, params: Params = _NONE, **parts: str) -> Row | None:
    """The first row of a named statement, or None."""
    with timed_query(parts.get("table", topic)), _rows(conn) as cursor:
        return cursor.execute(sql.statement(topic, name, **parts), params).fetchone()


def fetch_only(conn: psycopg.Connection[Any], topic: str, name: str, params: Params = _NONE, **parts: str) -> Row:
    """The row of a statement that always has one. Raises LookupError when it had none, which is a defect."""
    row = fetch_one(conn, topic, name, params, **parts)
    if row is None:
        raise LookupError(f"{topic}.{name} returned no row")
    return row


def fetch_literal(
    conn: psycopg.Connection[Any], topic: str, name: str, params: Params = _NONE, **parts: str
) -> list[Row]:
    """All rows of a statement with its values written into it, for plans that must see them (partition pruning)."""
    with psycopg.ClientCursor(conn, row_factory=namedtuple_row) as cursor:
        return list(cursor.execute(sql.statement(topic, name, **parts), params).fetchall())


def run(conn: psycopg.Connection[Any], topic: str, name: str, params: Params = _NONE, **parts: str) -> int:
    """Run a named statement that returns no rows: how many rows it touched. The caller checks the count."""
    with timed_query(parts.get("table", topic)), psycopg.Cursor(conn) as cursor:
        return cursor.execute(sql.statement(topic, name, **parts), params).rowcount


def retry_serialization(work: Callable[[], T], attempts: int = 3) -> T:
    """Run database-only work again after a serialization failure or a dead-lock, at most `attempts` times."""
    for attempt in range(attempts):
        try:
            return work()
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            if attempt == attempts - 1:
                raise
    raise AssertionError("unreachable")
