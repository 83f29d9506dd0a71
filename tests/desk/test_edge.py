"""The edge: request ids, headers, and logs that keep secrets."""

from __future__ import annotations

import json
import logging
import re
import uuid

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from relayer_site.logging import JsonFormatter, Redactor, current_request_id, logging_config
from relayer_site.middleware import REQUEST_ID_META, EdgeMiddleware, policy_for

KEY = "0x" + "ab" * 31 + "cd"
SIGNATURE = "0x" + "5a" * 65
HASH = "0x" + "12" * 32
URL = "https://user:pa55word@rpc.example.com:8443/v3/0123456789abcdef?token=zzz"


def line(message: str, *args: object, secrets: tuple[str, ...] = (), **extra: object) -> dict[str, object]:
    record = logging.LogRecord("relayer.test", logging.INFO, __file__, 1, message, args, None)
    record.__dict__.update(extra)
    formatted = JsonFormatter(secrets).format(record)
    assert "\n" not in formatted
    document: dict[str, object] = json.loads(formatted)
    return document


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"signing with {KEY}", "ab" * 31),
        (f"signing with {KEY[2:].upper()}", "AB" * 31),
        (f"endpoint {URL} is down", "pa55word"),
        (f"endpoint {URL} is down", "0123456789abcdef"),
        ("connect postgresql://relayer:hunter22@db/relayer failed", "hunter22"),
        (f"signature {SIGNATURE}", "5a" * 40),
        ("headers {'x-api-key': 'rk_1a2b3c4d_secretsecret'}", "secretsecret"),
        ("Authorization: Bearer rk_1a2b3c4d_secretsecret", "secretsecret"),
        ("raw " + "0x02f8" + "77" * 200, "77" * 100),
    ],
)
def test_secrets_leave_every_message(text: str, secret: str) -> None:
    for document in (
        line(text, secrets=(KEY,)),
        line("%s", text, secrets=(KEY,)),
        line("x", secrets=(KEY,), detail=text),
    ):
        assert secret not in json.dumps(document)


def test_secrets_leave_nested_values_and_tracebacks() -> None:
    document = line(
        "x",
        secrets=(KEY,),
        payload={"signature": "short", "deep": [{"password": "hunter22"}, KEY, bytes.fromhex(KEY[2:])]},
        private_key="k",
        headers={"Authorization": "Bearer abc", "X-Api-Key": "abc"},
    )
    text = json.dumps(document)
    for secret in ("hunter22", "ab" * 31, "Bearer abc", '"short"', '"k"'):
        assert secret not in text
    try:
        raise ValueError(f"cannot sign with {KEY} at {URL}")
    except ValueError as error:
        record = logging.LogRecord(
            "t", logging.ERROR, __file__, 1, "failed", (), (type(error), error, error.__traceback__)
        )
    out = JsonFormatter((KEY,)).format(record)
    assert "ValueError" in out
    assert "ab" * 31 not in out
    assert "pa55word" not in out


def test_what_people_need_stays() -> None:
    document = line(
        "sent", action="broadcast", tx_hash=HASH, nonce=7, job_key="1/7", shares=13, wei=2**200, ok=True, none=None
    )
    assert document["tx_hash"] == HASH
    assert (document["nonce"], document["job_key"], document["shares"]) == (7, "1/7", 13)
    assert document["wei"] == str(2**200)
    assert (document["ok"], document["none"]) == (True, None)
    assert Redactor().text("host https://rpc.example.com:8443/v3/x") == "host https://rpc.example.com:8443/..."
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(document["time"]))


def test_short_secrets_do_not_mangle_lines() -> None:
    assert Redactor(["a", ""]).text("a plain text") == "a plain text"


def test_the_configuration_is_accepted_by_logging() -> None:
    import logging.config

    root, level = logging.getLogger(), logging.getLogger().level
    handlers = list(root.handlers)
    try:
        logging.config.dictConfig(logging_config("INFO", [KEY]))
        assert any(isinstance(handler.formatter, JsonFormatter) for handler in root.handlers)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_a_lone_surrogate_costs_no_line() -> None:
    """What a caller put into JSON used to make the formatter fail, and the error that it belonged to was not in the log."""
    document = line("refused %s", "\ud800", name_given="\udfff", at={"x": b"\x01"})
    assert document["message"] == "refused \ud800"
    assert document["name_given"] == "\udfff"


def test_a_request_has_one_id_in_header_view_and_log() -> None:
    seen: list[object] = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.extend([request.META[REQUEST_ID_META], current_request_id.get(), line("inside")["request_id"]])
        return HttpResponse("ok")

    edge = EdgeMiddleware(view)
    answer = edge(RequestFactory().get("/v1/x"))
    given = answer.headers["x-request-id"]
    assert seen == [given] * 3
    assert str(uuid.UUID(given)) == given
    assert current_request_id.get() is None
    assert (
        edge(RequestFactory().get("/", headers={"x-request-id": "trace-7.a_B"})).headers["x-request-id"]
        == "trace-7.a_B"
    )
    for hostile in ("a\r\nset-cookie: x=1", "x" * 65, "<script>", "é"):
        assert edge(RequestFactory().get("/", headers={"x-request-id": hostile})).headers["x-request-id"] != hostile


def test_the_id_is_forgotten_when_the_view_raises() -> None:
    def view(request: HttpRequest) -> HttpResponse:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        EdgeMiddleware(view)(RequestFactory().get("/"))
    assert current_request_id.get() is None


def test_headers_are_strict_and_the_admin_alone_may_compile(client: Client, db: None) -> None:
    strict = client.get("/liveness").headers
    assert strict["Content-Security-Policy"].startswith("default-src 'none'")
    assert strict["X-Content-Type-Options"] == "nosniff"
    assert strict["X-Frame-Options"] == "DENY"
    assert strict["Cache-Control"] == "no-store"
    admin = client.get("/admin/login/").headers["Content-Security-Policy"]
    assert "'unsafe-eval'" in admin
    for path in ("/", "/v2/keyurl", "/docs", "/adminx-not"):
        if not path.startswith("/admin"):
            assert "unsafe-eval" not in policy_for(path)
    for path in ("/", "/admin/", "/docs", "/v1/x"):
        policy = policy_for(path)
        assert "script-src 'self' 'unsafe-inline'" not in policy
        assert "http:" not in policy
        assert "*" not in policy


def test_an_exchange_is_one_line_without_query(caplog: pytest.LogCaptureFixture) -> None:
    edge = EdgeMiddleware(lambda request: HttpResponse("ok", status=418))
    with caplog.at_level(logging.INFO, logger="relayer.http"):
        edge(RequestFactory().get("/v2/user-decrypt/7?token=abc", headers={"x-api-key": "rk_secret"}))
        edge(RequestFactory().get("/healthz"))
    lines = [JsonFormatter().format(record) for record in caplog.records if record.name == "relayer.http"]
    assert len(lines) == 1
    assert '"action":"http_exchange"' in lines[0]
    assert "token=abc" not in lines[0]
    assert "rk_secret" not in lines[0]
