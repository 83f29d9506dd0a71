"""django-q2's ORM broker, made to outlive a restart of the database.

When `dequeue` raises, q2's pusher sleeps ten seconds and ends; when `acknowledge` raises, its monitor ends. Here an outage costs one
poll. Connections are kept: the stock broker asks the database whether it is alive before each poll.
"""

from __future__ import annotations

import logging
from time import sleep
from typing import Any

from django.db import connections
from django.db.utils import InterfaceError, OperationalError
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ

log = logging.getLogger("relayer.cluster")

_LOST = (OperationalError, InterfaceError)


class SurvivingOrm(ORM):
    """The `broker_class` of our clusters."""

    @staticmethod
    def get_connection(list_key: str | None = None) -> Any:
        """The manager of the broker's table, over whatever connection this process has."""
        return OrmQ.objects.using(Conf.ORM)

    def dequeue(self) -> list[tuple[int, str]] | None:
        """The next task and its id; None when there is none, or when the database cannot be asked."""
        try:
            tasks: list[tuple[int, str]] | None = super().dequeue()
            return tasks
        except _LOST as error:
            _forget_connection("dequeue", error)
            sleep(Conf.POLL)
            return None

    def acknowledge(self, task_id: int) -> Any:
        """Delete a finished task. Undone in an outage: the task comes again, and finds its epoch over."""
        try:
            return super().acknowledge(task_id)
        except _LOST as error:
            _forget_connection("acknowledge", error)
            return None


def _forget_connection(action: str, error: Exception) -> None:
    log.warning("database unreachable", extra={"action": f"broker_{action}", "error": str(error)})
    connections[Conf.ORM].close()
