"""The settings under test: the product's own, with the embedded server under var/test (or $RELAYER_VAR).

A module of its own because the place must be known before the product's settings are read; processes that tests start inherit it.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("RELAYER_VAR", str(Path(__file__).resolve().parent.parent / "var" / "test"))
# Of two test runners side by side each has a server of its own: some tests stop theirs. What they start is told once.
if _runner := os.environ.pop("PYTEST_XDIST_WORKER", ""):
    os.environ["RELAYER_VAR"] += f"-{_runner}"
# The tests' server need not survive a power cut.
os.environ.setdefault("RELAYER_PG_OPTIONS", "-c fsync=off -c full_page_writes=off")

# Servers under test are asked for little: they need not draw the desk before they answer.
os.environ.setdefault("RELAYER_WARM_UP", "0")

from relayer_site.settings import *  # noqa: F403

# Quick on purpose: half a second of a core for every person that a test makes is most of what the test takes.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
