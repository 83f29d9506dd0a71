"""Empty the test database after a test: only the tables that hold rows, in one statement.

Django's own flush truncates every table and creates permissions and roles anew; with some 2,000 tests and 60 tables that is most
of the run. What migrations' signals made stays: content types, permissions, groups.

Truncated, not deleted, although that takes ten times as long: rows that follow deleted ones may take their places, and what a test reads
without an order would come in another one now and then. Autovacuum leaves the tables of the test database alone, so that no plan
depends on when it came.
"""

from __future__ import annotations

from functools import cache

from django.db import connection
from django.test import TransactionTestCase

KEPT = ("django_migrations", "django_content_type", "auth_permission", "auth_group", "auth_group_permissions")

_QUIET = """DO $$ DECLARE one regclass; BEGIN
  FOR one IN SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname = 'public' AND c.relkind = 'r' AND NOT c.relispartition LOOP
    EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', one);
  END LOOP; END $$"""


@cache
def _probe(database: str) -> str:
    """One query that names the tables with rows, partitioned roots included, partitions not."""
    with connection.cursor() as cursor:
        cursor.execute(_QUIET)
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> ALL(%s)"
            " ORDER BY 1",
            [list(KEPT)],
        )
        names = [row[0] for row in cursor.fetchall()]
    return " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT FROM \"{name}\")" for name in names)


def empty_database() -> None:
    """Truncate whatever holds rows. Tables that a test made are dropped by that test."""
    with connection.cursor() as cursor:
        cursor.execute(_probe(connection.settings_dict["NAME"]))
        filled = [row[0] for row in cursor.fetchall()]
        if filled:
            names = ", ".join(f'"{name}"' for name in filled)
            cursor.execute(f"TRUNCATE {names} CASCADE")


def install() -> None:
    """Use it after every transactional test."""
    TransactionTestCase._fixture_teardown = lambda self: empty_database()  # type: ignore[attr-defined, method-assign]
