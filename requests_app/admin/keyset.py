"""Lists that read a bounded number of rows whatever their table's size (design 5.6.4).

Pages continue after the last row shown, by the columns that order the list, instead of skipping rows. A filter that has no index of its
own looks at WINDOW rows and offers to look further: without it, a filter that nothing matches would read the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from unfold.views import ChangeList

WINDOW: Final = 4000
# What a search may take (100 ms) goes into drawing rows, 2.5 ms each, not into finding them: by a signer's address it finds a full page.
SEARCH_ROWS: Final = 12
PLACE: Final = "after"
_BETWEEN: Final = "~"


class KeysetPaginator(Paginator):  # type: ignore[type-arg]
    """Knows only its template; the list itself says where the next page begins."""

    template_name = "admin/relayer/pagination_keyset.html"
    count = 0


class KeysetList(ChangeList):
    """Rows in the fixed order of their admin; `after` in the address is the place of the last row seen.

    `indexed_filters` of the admin are the parameters of filters that an index serves together with the order.
    """

    next_url: str = ""
    first_url: str = ""
    searched_to: Any = None
    """The row where a search without index stopped, when there is more behind it."""

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """Filters only: the place is none."""
        found = super().get_filters_params(params)
        found.pop(PLACE, None)
        return dict(found)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:
        """The admin's own order, always: another one would sort the table."""
        return keys_of(self.model, self.model_admin.ordering)

    def get_ordering_field_columns(self) -> dict[int, str]:
        """No column shows as sorted by the reader."""
        return {}

    def get_results(self, request: HttpRequest) -> None:
        """One page behind the place, and where the next one begins."""
        keys = self.get_ordering(request, self.queryset)
        place = place_of(self.model, keys, request.GET.get(PLACE, ""))
        rows, stop = self.queryset, None
        if place is not None:
            rows = rows.filter(behind(keys, place))
        if self._unindexed() and not self.query:
            stop = self._window_end(request, keys, place)
            if stop is not None:
                rows = rows.filter(up_to(keys, _values(stop, keys)))
        size = min(self.list_per_page, SEARCH_ROWS) if self.query else self.list_per_page
        found = list(rows[: size + 1])
        last = found[size - 1] if len(found) > size else None
        self.searched_to = stop if last is None else None
        if (onward := last or stop) is not None:
            self.next_url = self.get_query_string({PLACE: token(onward, keys)})
        if PLACE in request.GET:
            self.first_url = self.get_query_string(remove=[PLACE])
        self.result_list = found[:size]
        self.result_count = len(self.result_list)
        # Nobody counted: of a difference the page's head would make "30 results (Show all)".
        self.full_result_count = self.result_count
        self.show_full_result_count = self.can_show_all = False
        self.show_admin_actions = self.multi_page = True
        self.paginator = KeysetPaginator(self.result_list, size)

    def _unindexed(self) -> bool:
        """Whether a filter is on that no index serves."""
        return bool(set(self.get_filters_params()) - set(self.model_admin.indexed_filters))

    def _window_end(self, request: HttpRequest, keys: Sequence[str], place: Sequence[Any] | None) -> Model | None:
        """The last row that a search without index reads; None when it reaches the end. Reads index entries only."""
        base, active, indexed = (
            self.root_queryset,
            set(self.get_filters_params()),
            set(self.model_admin.indexed_filters),
        )
        for spec in self.filter_specs:
            parameters = set(spec.expected_parameters())
            if parameters & indexed and parameters & active <= indexed:
                narrowed = spec.queryset(request, base)
                base = base if narrowed is None else narrowed
        if place is not None:
            base = base.filter(behind(keys, place))
        names = [key.removeprefix("-") for key in keys]
        found: Model | None = base.select_related(None).only(*names).order_by(*keys)[WINDOW - 1 : WINDOW].first()
        return found


def keys_of(model: type[Model], ordering: Sequence[str]) -> list[str]:
    """The columns that order a list, the primary key last, so that no two rows have one place."""
    primary = model._meta.pk.name
    keys = [key.replace("pk", primary) if key.removeprefix("-") == "pk" else key for key in ordering]
    if not any(key.removeprefix("-") == primary for key in keys):
        keys.append(f"-{primary}" if keys and keys[0].startswith("-") else primary)
    return keys


def behind(keys: Sequence[str], values: Sequence[Any]) -> Q:
    """Rows that come after those values. All keys have one direction; the first condition is what an index needs."""
    return _beyond(keys, values, "lt" if keys[0].startswith("-") else "gt", "")


def up_to(keys: Sequence[str], values: Sequence[Any]) -> Q:
    """Rows that come before those values, or have them."""
    return _beyond(keys, values, "gt" if keys[0].startswith("-") else "lt", "e")


def _beyond(keys: Sequence[str], values: Sequence[Any], way: str, equal: str) -> Q:
    first = keys[0].removeprefix("-")
    if len(keys) == 1:
        return Q(**{f"{first}__{way}{equal}": values[0]})
    rest = Q(**{f"{first}__{way}": values[0]}) | _beyond(keys[1:], values[1:], way, equal)
    return Q(**{f"{first}__{way}e": values[0]}) & rest


def token(row: Model, keys: Sequence[str]) -> str:
    """The place of a row, for an address."""
    return _BETWEEN.join(str(value) for value in _values(row, keys))


def place_of(model: type[Model], keys: Sequence[str], text: str) -> list[Any] | None:
    """The values that a token names; None for no token and for one that means nothing, which shows the first page."""
    parts = text.split(_BETWEEN) if text and "\0" not in text else []
    if len(parts) != len(keys):
        return None
    fields = [model._meta.get_field(key.removeprefix("-")) for key in keys]
    try:
        values = [field.clean(part, None) for field, part in zip(fields, parts, strict=True)]  # type: ignore[union-attr]
        # At the ends of the calendar a time with an offset is none in UTC.
        return [value.astimezone(UTC) if isinstance(value, datetime) else value for value in values]
    except (ValidationError, OverflowError):
        return None


def _values(row: Model, keys: Sequence[str]) -> list[Any]:
    return [getattr(row, key.removeprefix("-")) for key in keys]
