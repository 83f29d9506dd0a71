"""The admin of things that are history: looked at, searched, never edited.

State changes go through `transitions`; a form that edits a row would bypass every guard. So nothing here has a form:
lists are Django's, the page of one row is made of sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite, ShowFacets
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Model, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from unfold.admin import ModelAdmin

from requests_app.admin.cells import NOTHING, plain
from requests_app.admin.keyset import KeysetList
from requests_app.admin.page import Facts, Section
from requests_app.store.session import snapshot


class RecordAdmin(ModelAdmin):
    """A read-only list and page. Subclasses say which columns, filters and sections.

    Lists never count, never sort, and read a bounded number of rows: see `keyset`.
    """

    actions = None
    list_display: tuple[str, ...] = ("__str__",)
    list_filter: tuple[Any, ...] = ()
    search_fields: tuple[str, ...] = ()
    list_per_page = 30
    show_full_result_count = False
    empty_value_display = NOTHING
    show_facets = ShowFacets.NEVER
    sortable_by = ()
    indexed_filters: tuple[str, ...] = ()
    """Parameters of filters that an index serves together with the order of the list."""
    list_filter_sheet = False
    list_before_template = "admin/relayer/list_links.html"
    ordering: tuple[str, ...] = ("-pk",)
    singular: str = ""
    """What one row is called, where the model's own name is not ours to give."""
    plural: str = ""

    def __init__(self, model: type[Model], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        self.singular = self.singular or str(self.opts.verbose_name)
        self.plural = self.plural or str(self.opts.verbose_name_plural)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds history by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody edits history."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody deletes history."""
        return False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetList]:
        """Pages by key."""
        return KeysetList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list under its name: nothing here is selected, and nothing changed."""
        title = {"title": capfirst(self.plural)}
        return super().changelist_view(request, {**title, **(extra_context or {})})  # type: ignore[no-any-return]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Django's. Raises BadRequest for parameters that no database takes."""
        _refuse_nul(request.GET)
        return super().get_changelist_instance(request)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only by the list's own filters: Django lets an address filter by every column, letter by letter by one that is shown to nobody."""
        column = lookup.partition(LOOKUP_SEP)[0]
        known = any(column in (field.name, getattr(field, "attname", "")) for field in self.opts.get_fields())
        return column in _filtered(self.list_filter) if known or column == "pk" else True

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """What the page of one row shows; by default every column."""
        return [Facts("Record", columns(obj))]

    def links(self, request: HttpRequest, obj: Any) -> Sequence[tuple[str, str]]:
        """Related pages, as (text, URL)."""
        return []

    def act(self, request: HttpRequest, obj: Any) -> HttpResponse | None:
        """Carry out a POSTed deed; None shows the page again. Pages without deeds ignore the POST."""
        return None

    def page_url(self, obj: Model) -> str:
        """The address of one row's page."""
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=(obj.pk,))

    def page_title(self, obj: Any) -> str:
        """The heading of one row's page."""
        return f"{capfirst(self.singular)} {obj}"

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one row. Without permission 403; unknown: back to the list with a message. Raises BadRequest for a NUL anywhere.

        All of the page is of one moment: no order is shown as applied beside the state from before it.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        _refuse_nul(request.POST, object_id)
        if request.method == "POST":
            obj = self.get_object(request, unquote(object_id))
            if obj is not None and (answer := self.act(request, obj)) is not None:
                return answer
        with snapshot():
            obj = self.get_object(request, unquote(object_id))
            if obj is not None:
                shown = {"sections": self.sections(request, obj), "links": self.links(request, obj)}
                return self.render_page(request, self.page_title(obj), {**shown, **(extra_context or {})})
        self.message_user(request, f"There is no {self.singular} {object_id}.", messages.WARNING)
        return HttpResponseRedirect(reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"))

    def render_page(self, request: HttpRequest, title: str, context: dict[str, Any]) -> HttpResponse:
        """A page of sections inside the admin's frame."""
        request.current_app = self.admin_site.name
        frame = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "has_view_permission": True,
            "model_admin": self,
        }
        return TemplateResponse(request, "admin/relayer/page.html", {**frame, **context})

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page itself is the history."""
        return HttpResponseRedirect(
            reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=(object_id,))
        )


class ExtraPages:
    """Mixin: list pages for tables that Django's admin cannot register (those with composite keys)."""

    extra_pages: Sequence[tuple[str, str, str]] = ()
    """(path below the model's URL, URL name, method name)"""

    def get_urls(self) -> list[URLPattern]:
        """The extra pages before the model's own URLs, whose catch-all would take them."""
        own = [
            path(route, self.admin_site.admin_view(getattr(self, method)), name=name)  # type: ignore[attr-defined]
            for route, name, method in self.extra_pages
        ]
        inherited: list[URLPattern] = super().get_urls()  # type: ignore[misc]
        return [*own, *inherited]


def _filtered(filters: Sequence[Any]) -> set[str]:
    """The columns and parameters of a list's filters."""
    names = (one[0] if isinstance(one, tuple) else getattr(one, "parameter_name", one) for one in filters)
    return {name for name in names if isinstance(name, str)}


def _refuse_nul(fields: QueryDict, *texts: str) -> None:
    """PostgreSQL's texts hold no NUL; Django's form of the search refuses one with a message, filters and keys do not."""
    given = (text for name, values in fields.lists() if name != SEARCH_VAR for text in values)
    if any("\0" in text for text in (*texts, *given)):
        raise BadRequest("a NUL is no text")


def columns(obj: Model) -> list[tuple[str, Any]]:
    """Every column of a row by name, in the form that suits its type."""
    return [
        (
            str(capfirst(field.verbose_name)),
            _choice_text(obj, field.name) if field.choices else plain(getattr(obj, field.attname)),
        )
        for field in obj._meta.concrete_fields
    ]


def _choice_text(obj: Model, name: str) -> str:
    return str(getattr(obj, f"get_{name}_display")())


def older_than(queryset: QuerySet[Any], request: HttpRequest, field: str, size: int) -> tuple[list[Any], str]:
    """One page of rows below the `before` parameter, newest first, and the query string of the next page (or "")."""
    before = request.GET.get("before", "")
    if before.isascii() and before.isdigit() and len(before) <= 18:
        queryset = queryset.filter(**{f"{field}__lt": int(before)})
    rows = list(queryset.order_by(f"-{field}")[: size + 1])
    if len(rows) <= size:
        return rows, ""
    return rows[:size], f"?before={getattr(rows[size - 1], field)}"
