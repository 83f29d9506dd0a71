"""The product's settings, with an echo of DRF beside its routes: what the measured routes are compared with."""

from __future__ import annotations

import os

from relayer_site.settings import *  # noqa: F403
from relayer_site.settings import DATABASES, RELAYER_ROLE

ROOT_URLCONF = "bench.urls"
if os.environ.get("BENCH_PREPARE") and RELAYER_ROLE == "web":
    choice = os.environ["BENCH_PREPARE"]
    DATABASES["default"]["OPTIONS"]["prepare_threshold"] = None if choice == "off" else int(choice)
