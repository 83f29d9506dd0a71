"""Makes the desk's first page as quick as any other: what its pages need is loaded and drawn once before the server takes requests.

Templates are parsed at their first use, and views imported at the first request: together that was more than a second, for whoever
opened the desk after a restart.
"""

from __future__ import annotations

import logging
import time

import psycopg
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import Error, connection
from django.test import RequestFactory
from django.urls import get_resolver

_log = logging.getLogger("relayer.web")
_LISTS = ("reviewcase", "userdecryptrequest")


def warm_up() -> float:
    """Import every view and draw the desk's first page and two lists for nobody: the seconds it took. Without database it draws less."""
    began = time.perf_counter()
    _ = get_resolver().url_patterns
    request = RequestFactory().get("/admin/", headers={"host": "localhost"})
    request.user = User(username="warm-up", is_staff=True, is_superuser=True)
    try:
        admin.site.index(request).render()
        for name in _LISTS:
            model = apps.get_model("requests_app", name)
            admin.site.get_model_admin(model).changelist_view(request).render()  # type: ignore[attr-defined]
    except (Error, psycopg.Error) as error:
        _log.warning("not warmed up", extra={"action": "warm_up_failed", "error": type(error).__name__})
    finally:
        connection.close()
    return time.perf_counter() - began
