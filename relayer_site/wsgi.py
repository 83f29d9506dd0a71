"""WSGI entry point (granian, or any other server)."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relayer_site.settings")
os.environ.setdefault("RELAYER_ROLE", "web")

import logging

import psycopg
from django.core.wsgi import get_wsgi_application
from django.db import Error

from workers import heap, lifeline

if os.environ.get("RELAYER_TIED"):
    # By its id: a parent that was killed while this worker was still starting sends no signal any more.
    lifeline.die_with_parent(parent=int(os.environ["RELAYER_TIED"]))

application = get_wsgi_application()


def _make_default_account() -> None:
    """API_AUTH may have become `optional` after the last migration; without database the next start does it."""
    from django.db import connection

    from requests_app.clients import make_default_account
    from requests_app.store.session import web_connection

    try:
        make_default_account(web_connection())
    except (Error, psycopg.Error):  # Django's connection, or a statement over it
        logging.getLogger("relayer.web").warning("no default account", extra={"action": "default_account_failed"})
    finally:
        connection.close()


_make_default_account()

if os.environ.get("RELAYER_WARM_UP", "1") != "0":  # tests start many servers and ask each for little
    from relayer_site.warm import warm_up

    warm_up()

heap.freeze_loaded()
