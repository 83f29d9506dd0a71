"""The TCP line before a database: it passes, hangs, breaks, and comes back."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import psycopg
import pytest

from tests.faults.tcp import CutLine


def test_the_line_passes_breaks_hangs_and_comes_back(conn: psycopg.Connection[object]) -> None:
    target = Path(conn.info.host) / ".s.PGSQL.5432"
    with CutLine(target) as line:
        address = f"postgresql://postgres@127.0.0.1:{line.port}/{conn.info.dbname}?connect_timeout=60"
        with psycopg.connect(address, autocommit=True) as over:
            assert over.execute("SELECT 1").fetchone() == (1,)
            line.hold()
            asking = Thread(target=lambda: over.execute("SELECT 2"))
            asking.start()
            asking.join(0.3)
            assert asking.is_alive(), "no answer, no error"
            line.mend()
            asking.join(60)
            assert not asking.is_alive()
            line.cut()
            with pytest.raises(psycopg.OperationalError):
                over.execute("SELECT 3")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(address)
        line.mend()
        with psycopg.connect(address) as again:
            assert again.execute("SELECT 4").fetchone() == (4,)
