"""The product's settings with a plain django-q2 cluster at its fastest: what `bench.jobs` compares the queue with."""

from __future__ import annotations

from relayer_site.settings import *  # noqa: F403

Q_CLUSTER = {
    "name": "bench",
    "orm": "default",
    "workers": 1,
    "bulk": 100,
    "queue_limit": 500,
    "save_limit": -1,
    "poll": 0.2,
    "timeout": 30,
    "retry": 120,
}
