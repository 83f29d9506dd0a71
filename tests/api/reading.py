"""The five request forms as the tests read them: which reader, which valid body, which complaints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from requests_app.api import intake
from requests_app.api.refusals import Refused
from tests.api import bodies

Form = tuple[intake.Reader, Callable[..., dict[str, Any]]]
IP: Form = (intake.input_proof, bodies.input_proof)
PD: Form = (intake.public_decrypt, bodies.public_decrypt)
UD: Form = (intake.direct, bodies.direct)
DD: Form = (intake.delegated, bodies.delegated)
V3: Form = (intake.unified, bodies.unified)
ALL = pytest.mark.parametrize("form", [IP, PD, UD, DD, V3], ids=["IP", "PD", "UD", "DD", "V3"])


def read(form: Form, body: Any) -> intake.Intake:
    return form[0](body if isinstance(body, bytes) else bodies.raw(body))


def details(form: Form, body: Any, label: str = "validation_failed") -> set[tuple[str, str]]:
    with pytest.raises(Refused) as caught:
        read(form, body)
    assert caught.value.label == label
    found = [(detail.field, detail.issue) for detail in caught.value.details]
    names = ", ".join(field for field, _ in found)
    if label == "validation_failed":
        noun = "field" if len(found) == 1 else "fields"
        assert caught.value.message == f"Validation failed for {len(found)} {noun} in the request: {names}"
    if label == "missing_fields":
        assert caught.value.message == f"Missing 1 required field in the request: {names}"
    return set(found)


def key_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [step for key in value for step in [(*path, key), *key_paths(value[key], (*path, key))]]
    if isinstance(value, list) and value:
        return key_paths(value[0], (*path, 0))
    return []
