"""WSGI entry point (granian, or any other server)."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relayer_site.settings")
os.environ.setdefault("RELAYER_ROLE", "web")

from django.core.wsgi import get_wsgi_application

from workers import lifeline

if os.environ.get("RELAYER_TIED"):
    lifeline.die_with_parent()

application = get_wsgi_application()
