"""Empty the test database after a test: only the tables that hold rows, in one statement.

Django's own flush truncates every table and creates permissions and roles anew; with some 2,000 tests and 60 tables that is most
of the run. What migrations' signals made stays: content types, permissions, groups.

A table is truncated when it has grown or when anybody has analysed it; else its few rows are deleted, which costs a tenth. So each test
begins with tables that nobody knows anything of: autovacuum leaves those of the test database alone, and no plan depends on when it came.
"""

from __future__ import annotations

from functools import cache

from django.db import connection
from django.test import TransactionTestCase

KEPT = ("django_migrations", "django_content_type", "auth_permission", "auth_group", "auth_group_permissions")
FEW_BYTES = 8 * 8192

_QUIET = """DO $$ DECLARE one regclass; BEGIN
  FOR one IN SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname = 'public' AND c.relkind = 'r' AND NOT c.relispartition LOOP
    EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', one);
  END LOOP; END $$"""


@cache
def _probe(database: str) -> str:
    """One query: the tables with rows, partitioned roots included, partitions not; and whether their rows are few and not analysed."""
    with connection.cursor() as cursor:
        cursor.execute(_QUIET)
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> ALL(%s)"
            " ORDER BY 1",
            [list(KEPT)],
        )
        names = [row[0] for row in cursor.fetchall()]
    filled = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT FROM \"{name}\")" for name in names)
    return (
        f"SELECT f.name, c.relkind = 'r' AND c.reltuples < 0 AND pg_relation_size(c.oid) <= {FEW_BYTES}"
        f" FROM ({filled}) f(name) JOIN pg_class c ON c.oid = ('public.' || quote_ident(f.name))::regclass"
    )


def empty_database() -> None:
    """Remove whatever rows there are, once nobody writes any more. Tables that a test made are dropped by that test."""
    with connection.cursor() as cursor:
        cursor.execute(_probe(connection.settings_dict["NAME"]))
        filled = [(f'"{name}"', few) for name, few in cursor.fetchall()]
        many, few = ([name for name, is_few in filled if is_few is wanted] for wanted in (False, True))
        statements = [f"TRUNCATE {', '.join(many)} CASCADE"] if many else []
        if few:
            # As TRUNCATE: neither triggers nor foreign keys, and not beside somebody who still writes. One string is one transaction.
            statements += [
                "SET LOCAL session_replication_role = replica",
                f"LOCK TABLE {', '.join(few)} IN SHARE ROW EXCLUSIVE MODE",
            ]
            statements += [f"DELETE FROM {name}" for name in few]
        if statements:
            cursor.execute("; ".join(statements))


def install() -> None:
    """Use it after every transactional test."""
    TransactionTestCase._fixture_teardown = lambda self: empty_database()  # type: ignore[attr-defined, method-assign]
