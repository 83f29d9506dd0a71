"""A page of the desk is of one moment, whatever the workers commit while it is put together."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.contrib.auth.models import User
from django.test import Client

from requests_app.admin import signing
from requests_app.models import Command, Signer
from requests_app.models.commands import Target
from requests_app.store.session import connect, snapshot, web_connection

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_order_is_not_shown_as_applied_beside_the_state_from_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was: the page had read the signer a moment before its owner paused it, and the order a moment after. Nothing renewed it."""
    signer = Signer.objects.create(chain_id=1, address=b"\x01" * 20)
    order = Command.objects.create(
        command_id=f"signer:{uuid4()}", kind="pause_signer", target_kind=Target.SIGNER, target_id=signer.pk, payload={},
        payload_hash=b"", requested_by="ada",
    )  # fmt: skip
    whole = signing.deed_sections

    def late(*given: Any) -> Any:
        with connect("worker") as owner, owner.transaction():
            owner.execute("UPDATE signer SET status = 'paused' WHERE id = %s", (signer.pk,))
            owner.execute(
                "UPDATE command SET state = 'consumed', outcome = 'applied', consumed_at = clock_timestamp() WHERE command_id = %s",
                (order.command_id,),
            )
        return whole(*given)

    monkeypatch.setattr(signing, "deed_sections", late)
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    text = client.get(f"/admin/requests_app/signer/{signer.pk}/change/").content.decode()
    assert "renews itself" in text
    assert "applied" not in text
    monkeypatch.undo()
    text = client.get(f"/admin/requests_app/signer/{signer.pk}/change/").content.decode()
    assert "applied" in text


def test_a_snapshot_sees_one_moment_and_writes_nothing() -> None:
    with snapshot():
        assert not User.objects.filter(username="late").exists()
        with connect("worker") as other:
            other.execute("INSERT INTO auth_group (name) VALUES ('late')")
        assert web_connection().execute("SELECT count(*) FROM auth_group WHERE name = 'late'").fetchone() == (0,)
    assert web_connection().execute("SELECT count(*) FROM auth_group WHERE name = 'late'").fetchone() == (1,)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), snapshot():
        web_connection().execute("DELETE FROM auth_group WHERE name = 'late'")
