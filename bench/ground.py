"""What a benchmark stands on: an embedded PostgreSQL of its own, migrated, in a directory that is removed afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.envelope_scene import Connection


@contextlib.contextmanager
def own_database(**environment: str) -> Iterator[Connection]:
    """A worker's connection to the fresh database, with default durability. Django is set up here, by `environment` too.

    Nothing that reads the settings may be imported before.
    """
    var = Path(tempfile.mkdtemp(prefix="relayer-bench-"))
    os.environ.update(RELAYER_VAR=str(var), DJANGO_SETTINGS_MODULE="relayer_site.settings", **environment)
    os.environ.pop("DATABASE_URL", None)
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connections

    from relayer_site.embedded import EmbeddedPostgres
    from requests_app.store.session import connect

    try:
        call_command("migrate", verbosity=0)
        connections["default"].close()
        with connect("worker", name="bench") as conn:
            yield conn
    finally:
        with contextlib.suppress(Exception):
            EmbeddedPostgres(var).stop()
        shutil.rmtree(var, ignore_errors=True)
