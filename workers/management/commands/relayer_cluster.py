"""Run one q2 process group: `manage.py relayer_cluster settle|sweep`."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    """Starts a django-q2 cluster that runs shifts, until SIGTERM or SIGINT."""

    help = "Run one django-q2 process group, which works shifts of a cluster until it is told to stop."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """The cluster, and the name of the group."""
        parser.add_argument("cluster", choices=sorted(settings.SHIFT_TURNS))
        parser.add_argument("--group", default="", help="queue key of this process group (default <cluster>-<host>)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the group; exit status 1 when it ended without having been told to."""
        from workers.cluster.group import group_name, run_group

        cluster = str(options["cluster"])
        group = options["group"] or group_name(cluster)
        if os.environ.get("Q_CLUSTER_NAME") != group:
            # django-q2 reads its cluster's name once, at import, from the environment: begin again with it set.
            os.environ["Q_CLUSTER_NAME"] = group
            os.environ.setdefault("RELAYER_ROLE", "worker")
            os.execv(sys.executable, [sys.executable, *sys.argv])
        sys.exit(run_group(cluster, group))
