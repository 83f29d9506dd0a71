"""The OpenAPI document is generated, committed, complete, and free of outside references."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from pytest_django import Settings

from requests_app.api.labels import Label
from requests_app.api.openapi.document import document
from requests_app.api.urls import api_patterns
from requests_app.states import Status

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"


@pytest.fixture
def spec() -> dict[str, Any]:
    return dict(json.loads(document()))


def test_the_committed_document_is_up_to_date() -> None:
    assert COMMITTED.read_bytes() == document(), "run: manage.py relayer_openapi --write"


def test_it_is_served(db: None) -> None:
    response = Client().get("/openapi.json")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.content == document()


def test_every_route_and_method_is_described(spec: dict[str, Any]) -> None:
    described = {(path, method) for path, operations in spec["paths"].items() for method in operations}
    routed = set()
    for pattern in api_patterns:
        path = "/" + re.sub(r"<str:(\w+)>", r"{\1}", str(pattern.pattern))
        methods = pattern.callback.cls.http_method_names
        routed |= {(path, method) for method in methods if method != "head"}
    assert described == routed


def test_references_resolve_and_operation_ids_are_unique(spec: dict[str, Any]) -> None:
    text = json.dumps(spec)
    names = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert names <= set(spec["components"]["schemas"])
    ids = re.findall(r'"operationId": "(\w+)"', text)
    assert len(ids) == len(set(ids)) > 15
    assert "http://" not in text.replace("http://json-schema.org", "")


def test_every_answer_has_a_schema_and_every_post_a_body(spec: dict[str, Any]) -> None:
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                assert status == "204" or answer["content"], (path, method, status)
            if method == "post" and not path.endswith(("/cancel", "/secret", "/test")):
                assert operation["requestBody"]["required"] is True
            pending = "202" in operation["responses"]
            if pending:
                assert "Retry-After" in operation["responses"]["202"]["headers"]
            if path != "/v2/keyurl":
                assert {"ApiKey": []} in operation["security"]
                assert "401" in operation["responses"]


def test_enumerations_come_from_the_tables(spec: dict[str, Any]) -> None:
    schemas = spec["components"]["schemas"]
    assert schemas["Row"]["properties"]["status"]["enum"] == [status.value for status in Status]
    assert schemas["Failed"]["properties"]["error"]["properties"]["label"]["enum"] == [label.value for label in Label]


def test_the_command_checks_and_writes(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings.BASE_DIR = tmp_path
    with pytest.raises(CommandError):
        call_command("relayer_openapi", "--check")
    call_command("relayer_openapi", "--write")
    call_command("relayer_openapi", "--check")
    assert (tmp_path / "docs" / "openapi.json").read_bytes() == document()
    capsys.readouterr()
    call_command("relayer_openapi")
    assert capsys.readouterr().out.encode() == document()


def test_swagger_ui_comes_from_here_only(db: None) -> None:
    client = Client()
    page = client.get("/docs")
    assert page.status_code == 200
    links = re.findall(r'(?:src|href)="([^"]+)"', page.content.decode())
    assert len(links) >= 3
    assert all(link.startswith("/") and not link.startswith("//") for link in links), links
    assert b"<script>" not in page.content  # the policy of /docs forbids inline scripts
    script = next(link for link in links if "script" in link)
    assert b"/openapi.json" in client.get(script).content
