"""What stands around the requests of a scene: chain sources, events, leases, heartbeats, a command."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from requests_app import models
from requests_app.admin.explain import EVENTS
from requests_app.states import Kind, Status
from requests_app.store.session import web_connection
from tests.listen.world import clean_bands

HOSTILE = "<script>alert('xss')</script>\"><img src=x onerror=alert(1)>"


class Surroundings:
    """Part of a scene; the scene sets the attributes."""

    random: random.Random
    now: datetime
    signers: list[models.Signer]
    cases: list[models.ReviewCase]
    rows: dict[tuple[Kind, Status], list[Any]]

    def bytes(self, size: int) -> bytes:
        """Seeded random bytes."""
        return self.random.randbytes(size)

    def moving_parts(self) -> None:
        """Sources, cursors, events, leases, heartbeats, a command."""
        source = models.EnvelopeSource.objects.create(
            source_id=1, name="gateway", chain_id=654321, start_block=0, retain=timedelta(days=30)
        )
        models.ChainCursor.objects.create(source=source, block=81_300, head_hash=self.bytes(32))
        models.ConsumerCursor.objects.create(consumer="apply", source_id=1, position=81_300 << 20)
        models.ChainIdentity.objects.create(chain_id=654321, genesis_hash=self.bytes(32))
        models.DeadEnvelope.objects.create(
            consumer="apply", source_id=1, position=80_000 << 20 | 3, error_class="DecodeError", error=HOSTILE
        )
        models.ReviewDecision.objects.create(
            case=self.cases[0], seq=1, action="fail", reason="looked too early", state="withdrawn",
            decided_by="ada", second_by="bob", second_at=self.now,
        )  # fmt: skip
        self._envelopes()
        signer = f"signer:654321:0x{bytes(self.signers[0].address).hex()}"
        for resource in (
            "listener:1",
            "shift:settle:0",
            "shift:settle:1",
            "shift:sweep:0",
            "singleton:retention",
            signer,
        ):
            models.ExecLease.objects.create(
                resource=resource,
                instance="host-a:4711:c0ffee",
                epoch=7,
                lease_until=self.now + timedelta(seconds=3600),
            )
            models.WorkerBeat.objects.create(resource=resource, instance="host-a:4711:c0ffee", pid=4711, host="host-a")
        models.ExecLease.objects.create(
            resource="singleton:reconcile",
            instance="host-b:99:beef",
            epoch=3,
            lease_until=self.now - timedelta(hours=2),
        )
        models.Command.objects.create(
            command_id="cancel:1:77",
            kind="cancel",
            target_kind=1,
            target_id=1,
            resource="singleton:commands",
            payload={"reason": HOSTILE},
            payload_hash=self.bytes(32),
            requested_by="acme-wallet",
        )

    def _envelopes(self) -> None:
        """An event of each kind, the first two about a completed user decryption."""
        row = self.rows[Kind.USER_DECRYPT, Status.COMPLETED][0]
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'envelope_meta_s1_b0'")
            bounds = cursor.fetchone()
            if bounds is not None and f"TO ('{131_072 << 20}')" not in bounds[0]:
                clean_bands(web_connection())  # narrow ones, which other tests have left
            cursor.execute("SELECT ensure_envelope_band(1, %s)", (81_234 << 20,))
        models.EnvelopeMeta.objects.bulk_create(
            models.EnvelopeMeta(
                source_id=1,
                position=81_234 << 20 | number,
                kind=number,
                ref=row.gw_reference_id if number in (2, 5) else self.bytes(32),
                contract=self.bytes(20),
                block_hash=self.bytes(32),
                tx_hash=self.bytes(32),
                digest=self.bytes(32),
                recorded_at=self.now,
            )
            for number in EVENTS
        )
