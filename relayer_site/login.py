"""The desk's door: the form that asks before a password is looked at, and the view that answers 429 where it was not."""

from __future__ import annotations

import logging
import math
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from unfold.forms import AuthenticationForm

from requests_app import desk_logins
from requests_app.metrics import desk_logins as counter
from requests_app.store.session import web_connection

_log = logging.getLogger("relayer.desk")


class LoginForm(AuthenticationForm):
    """Name and password. `wait` are the seconds after which a refused try may be made again; 0: it was not refused."""

    wait = 0

    def clean(self) -> dict[str, Any]:
        """Django's, within the bounds of `desk_logins`. Raises ValidationError."""
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if not name or not password:
            return dict(super().clean())
        conn, address = web_connection(), desk_logins.address_of(self.request.META)
        self.wait = desk_logins.admit(conn, address, name)
        if self.wait:
            _tell("refused", name, address)
            raise ValidationError(_words(self.wait), code="too_many")
        try:
            cleaned = super().clean()
        except ValidationError:
            _tell("failed", name, address)
            raise
        desk_logins.welcome(conn, address, name)
        _tell("succeeded", name, address)
        return dict(cleaned)


def login(request: HttpRequest) -> HttpResponseBase:
    """The admin's page of that form; 429 with Retry-After when the form refused to look at the password."""
    response = admin.site.login(request)
    form = (getattr(response, "context_data", None) or {}).get("form")
    if isinstance(form, LoginForm) and form.wait:
        response.status_code = 429
        response.headers["Retry-After"] = str(form.wait)
    return response


def _words(seconds: int) -> str:
    minutes = math.ceil(seconds / 60)
    return (
        f"Too many logins have failed from where you are. For the next {minutes} minute{'' if minutes == 1 else 's'}"
        " no password is looked at, not even the right one."
    )


def _tell(outcome: str, name: str, address: str) -> None:
    """Count and log a try. A name that is nobody's stays out of the log: it may be a password."""
    counter.labels(outcome).inc()
    known = name if User.objects.filter(username=name).exists() else "(unknown)"
    level = logging.INFO if outcome == "succeeded" else logging.WARNING
    extra = {"action": "desk_login", "outcome": outcome, "person": known, "address": address}
    _log.log(level, "login to the desk %s: %s from %s", outcome, known, address, extra=extra)
