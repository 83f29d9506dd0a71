"""Column kinds that the models share."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _DateTimeField = models.DateTimeField[Any, Any]
    _DecimalField = models.DecimalField[Any, Any]
else:
    _DateTimeField = models.DateTimeField
    _DecimalField = models.DecimalField


class ClockTimestamp(models.Func):
    """The database clock at the moment of the row, not at the start of its transaction."""

    function = "clock_timestamp"
    output_field = models.DateTimeField()


class RandomUUID(models.Func):
    """A random id from the database, for rows that its triggers make."""

    function = "gen_random_uuid"
    output_field = models.UUIDField()


def stamped() -> _DateTimeField:
    """A time that the database fills in."""
    return models.DateTimeField(db_default=ClockTimestamp(), editable=False)


class WeiField(_DecimalField):
    """An amount in wei or token units: any uint256, numeric(78,0)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "max_digits": 78, "decimal_places": 0})


def text_choices(values: type[StrEnum]) -> list[tuple[str, str]]:
    """Choices of a StrEnum for a Django field."""
    return [(value.value, value.value.replace("_", " ")) for value in values]


def one_of(column: str, values: list[str], name: str) -> models.CheckConstraint:
    """A CHECK that a text column holds one of the values."""
    return models.CheckConstraint(condition=models.Q(**{f"{column}__in": values}), name=name)
