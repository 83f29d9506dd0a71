"""Runtime settings on the desk: what they are, who changed them, and the form that changes one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html

from requests_app import runtime
from requests_app.admin import cells
from requests_app.admin.base import RecordAdmin
from requests_app.admin.forms import lock_author, posted_reason
from requests_app.admin.page import Facts, Table
from requests_app.models import RuntimeSetting
from requests_app.runtime import REGISTRY, Parameter, SettingRefused, Type
from requests_app.store import runtime as store
from requests_app.store.session import web_connection

PERMISSION: Final = "requests_app.change_runtime"
_SHOWN: Final = 30


@dataclass(frozen=True, slots=True)
class SettingForm:
    """The form of one parameter."""

    title: str
    range: str
    value: str
    reason: str
    changed: bool
    template: str = field(default="admin/relayer/setting_form.html", init=False)


@admin.register(RuntimeSetting)
class RuntimeSettingAdmin(RecordAdmin):
    """Every parameter of the registry, changed or not. Operators change one at a time, with a reason."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """All parameters with value, default and range."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        stored = {row.name: row for row in RuntimeSetting.objects.all()}
        now = runtime.effective({name: row.value for name, row in stored.items()})
        initial = runtime.defaults()
        rows = [
            (
                cells.stacked((cells.link(parameter.name, _url(parameter.name)), cells.wrapped(parameter.meaning))),
                cells.wrapped(_shown(now[parameter.name])),
                cells.wrapped(_shown(initial[parameter.name])),
                cells.wrapped(range_text(parameter)),
                _changed(stored.get(parameter.name)),
            )
            for parameter in REGISTRY.values()
        ]
        table = Table("Parameters", ("Name", "Value", "Default", "Range", "Changed"), rows)
        changes = Table("Latest changes", _HEADERS, _changes(None), "Nothing was ever changed.")
        return self.render_page(request, "Runtime settings", {"sections": [table, changes], "links": []})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One parameter with its history; a POST of somebody who may do so changes it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        parameter = REGISTRY.get(unquote(object_id))
        if parameter is None:
            raise Http404
        if request.method == "POST":
            if not request.user.has_perm(PERMISSION):
                raise PermissionDenied
            if self._change(request, parameter):
                return HttpResponseRedirect(_url(parameter.name))
        return self._page(request, parameter)

    def _change(self, request: HttpRequest, parameter: Parameter) -> bool:
        reason = posted_reason(request)
        if not reason:
            self.message_user(request, "Say why: the reason is part of the history.", messages.ERROR)
            return False
        try:
            value = (
                None
                if request.POST.get("action") == "reset"
                else runtime.parse(parameter.name, request.POST.get("value", ""))
            )
            done = runtime.change(
                web_connection(),
                parameter.name,
                value,
                by=lambda conn: f"admin:{lock_author(conn, request)}",
                reason=reason,
            )
        except SettingRefused as error:
            self.message_user(request, str(error), messages.ERROR)
            return False
        text = f"{parameter.name}: {_shown(done.before)} → {_shown(done.after)}" if done.written else "Nothing changed."
        self.message_user(request, text, messages.SUCCESS)
        return True

    def _page(self, request: HttpRequest, parameter: Parameter) -> HttpResponse:
        row = RuntimeSetting.objects.filter(pk=parameter.name).first()
        now = parameter.initial() if row is None else row.value
        facts = Facts(
            "The parameter",
            [
                ("Meaning", parameter.meaning),
                ("Value", _shown(now)),
                ("Default", _shown(parameter.initial())),
                ("Range", range_text(parameter)),
                ("Changed", _changed(row)),
            ],
        )
        sections: list[Any] = [facts]
        if request.user.has_perm(PERMISSION):
            given = request.POST.get("value", _shown(now))
            reason = request.POST.get("reason", "")
            sections.append(SettingForm("Change it", range_text(parameter), given, reason, row is not None))
        sections.append(
            Table("History", _HEADERS, _changes(parameter.name), "It was never changed.", note="newest first")
        )
        links = [("All parameters", reverse("admin:requests_app_runtimesetting_changelist"))]
        return self.render_page(request, parameter.name, {"sections": sections, "links": links})


_HEADERS: Final = ("When", "Who", "Parameter", "From", "To", "Why")


def range_text(parameter: Parameter) -> str:
    """The range in words."""
    if parameter.type is Type.TABLE:
        return f"[[elapsed s, retry s], …], retry {int(parameter.low)} to {int(parameter.high)}"
    low, high = (int(n) if parameter.type is Type.U32 else n for n in (parameter.low, parameter.high))
    return f"{low} to {high}"


def _changes(name: str | None) -> list[tuple[Any, ...]]:
    return [
        (
            cells.moment(row.at),
            row.changed_by,
            row.name,
            "default" if row.before is None else _shown(row.before),
            "default" if row.after is None else _shown(row.after),
            cells.wrapped(row.reason),
        )
        for row in store.history(web_connection(), name, _SHOWN)
    ]


def _changed(row: RuntimeSetting | None) -> Any:
    return cells.NOTHING if row is None else format_html("{} by {}", cells.short_moment(row.updated_at), row.updated_by)


def _shown(value: Any) -> str:
    return json.dumps(value)


def _url(name: str) -> str:
    return reverse("admin:requests_app_runtimesetting_change", args=(name,))
