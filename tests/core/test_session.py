"""A worker's connection is made as DATABASE_URL says, not only to where it says."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connections

from requests_app.store import session
from requests_app.store.session import connect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def options(settings):
    """The OPTIONS of the default database, put back afterwards."""
    given = settings.DATABASES["default"]["OPTIONS"]
    before = dict(given)
    yield given
    given.clear()
    given.update(before)


def test_transport_security_of_the_url_binds_workers_too(options):
    """sslmode=verify-full used to be dropped: workers would have sent their password to anybody in plain text."""
    if not connections["default"].settings_dict["HOST"].startswith("/"):
        pytest.skip("over TCP a server may well refuse or grant TLS")
    options["channel_binding"] = "require"  # unlike sslmode it is not ignored on a local socket
    with pytest.raises(psycopg.OperationalError, match="channel binding"):
        connect("worker")


def test_session_options_of_the_url_hold_beside_the_limits_of_the_role(options):
    options["options"] = f"{options.get('options', '')} -c search_path=elsewhere,public -c statement_timeout=1s"
    with connect("worker") as conn:
        found = [conn.execute(f"SHOW {name}").fetchone()[0] for name in ("search_path", "statement_timeout", "jit")]
    assert found == ["elsewhere,public", "10s", "off"]


def test_what_django_keeps_in_the_options_is_no_obstacle(options):
    """The web role's pool and threshold of preparing; a process of that role opens connections of its own, too."""
    options.update(pool={"min_size": 1}, prepare_threshold=2)
    with connect("worker") as conn:
        assert conn.prepare_threshold == 1
        assert conn.autocommit


def test_jsonb_is_read_exactly(transactional_db):
    """Integers of any size stay what they are, a decimal beyond a double is infinite, as `json` reads them. On Django's connection too."""
    text = '{"a": [123456789012345678901234567890, -9223372036854775809, 1.5, null, true], "ä": "\\u0001x"}'
    wanted = {"a": [123456789012345678901234567890, -9223372036854775809, 1.5, None, True], "ä": "\x01x"}
    with connect("worker") as conn, conn.cursor() as cursor:
        assert cursor.execute("SELECT %s::jsonb", (text,)).fetchone() == (wanted,)
        assert cursor.execute("SELECT jsonb_build_array(1e400, 1e400 + 0.5)").fetchone() == ([10**400, float("inf")],)
    with session._rows(session.web_connection()) as cursor:
        assert cursor.execute("SELECT %s::jsonb AS v", (text,)).fetchone() == (wanted,)
