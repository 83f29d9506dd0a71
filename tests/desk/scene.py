"""A database with something of everything: every kind in every state, slots, attempts, reviews, leases, listeners.

Deterministic (seeded), so that screenshots can be compared. Written directly: the desk only reads.
"""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from requests_app import models
from requests_app.models.reviews import ReasonCode
from requests_app.states import (
    FINAL,
    INITIAL,
    REQUEST_KINDS,
    USUAL_EVENTS,
    DeliveryState,
    IntentState,
    Kind,
    ReqType,
    Status,
)
from requests_app.store.figures import count_ended
from requests_app.store.intents import Intent
from requests_app.store.session import web_connection
from tests.desk.paying import given_up, payment
from tests.desk.surroundings import HOSTILE, Surroundings

_MODELS = {
    Kind.USER_DECRYPT: models.UserDecryptRequest,
    Kind.PUBLIC_DECRYPT: models.PublicDecryptRequest,
    Kind.INPUT_PROOF: models.InputProofRequest,
}
_WAY = {
    Status.QUEUED: [],
    Status.PROCESSING: ["admit"],
    Status.TX_IN_FLIGHT: ["admit", "prepare_send"],
    Status.RECEIPT_RECEIVED: ["admit", "prepare_send", "record_receipt"],
    Status.COMPLETED: ["admit", "prepare_send", "record_receipt", "complete"],
    Status.TIMED_OUT: ["admit", "prepare_send", "record_receipt", "expire_response"],
    Status.FAILURE: ["deny"],
    Status.NEEDS_REVIEW: ["admit", "prepare_send", "park"],
}
_TARGET = {
    "admit": Status.PROCESSING,
    "prepare_send": Status.TX_IN_FLIGHT,
    "record_receipt": Status.RECEIPT_RECEIVED,
    "complete": Status.COMPLETED,
    "expire_response": Status.TIMED_OUT,
    "deny": Status.FAILURE,
    "park": Status.NEEDS_REVIEW,
}


class Scene(Surroundings):
    """Writes the rows; keeps the ids that tests look for."""

    def __init__(self, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.now = datetime.now(UTC)
        self.client = models.Account.objects.create(name="acme-wallet", status="active")
        self.other = models.Account.objects.create(name="dormant-client", status="disabled")
        models.ApiKey.objects.create(account=self.client, prefix="rk_1a2b3c4d", digest=self.bytes(32))
        models.ApiKey.objects.create(
            account=self.client, prefix="rk_99887766", digest=self.bytes(32), revoked_at=self.now - timedelta(days=3)
        )
        self.signers = [
            models.Signer.objects.create(
                chain_id=654321,
                address=self.bytes(20),
                status=status,
                status_reason=None if status == "active" else "no native gas",
                next_nonce=1_204,
                chain_nonce_latest=1_201,
                balance_wei=Decimal(balance),
                fee_balance=Decimal(2**255),
                fee_allowance=Decimal(2**256 - 1),
                last_synced_at=self.now - timedelta(seconds=4),
            )
            for status, balance in (("active", 9_871_234_500_000_000_000), ("paused", 0))
        ]
        self.nonces = dict.fromkeys((signer.pk for signer in self.signers), 1_180)
        self.cases: list[models.ReviewCase] = []
        self.rows: dict[tuple[Kind, Status], list[Any]] = {}

    def build(self, each: int = 3) -> Scene:
        """Everything, with `each` requests of every kind and state."""
        for kind in REQUEST_KINDS:
            for status in Status:
                if status is Status.QUEUED and INITIAL[kind] is not Status.QUEUED:
                    continue
                self.rows[kind, status] = [self.request(kind, status, index) for index in range(each)]
        self.payments = {state: payment(self.client.pk, state, self.bytes(32)) for state in IntentState}
        given_up(self.payments[IntentState.AUTHORIZED])
        self.observe(self.payments[IntentState.SETTLED])
        self.told()
        self.moving_parts()
        for kind in REQUEST_KINDS:
            count_ended(web_connection(), kind, 0.0, 10_000)
        return self

    def told(self) -> None:
        """A webhook, and a delivery in each state."""
        self.webhook = models.Webhook.objects.create(
            public_id="wh_0123456789abcdef01234567",
            account=self.client,
            url="https://wallet.acme.example/relayer?tenant=7",
            description="wallet back end",
            events=list(USUAL_EVENTS),
            kinds=[kind.value for kind in Kind],
            secret=self.bytes(32),
        )
        row = self.rows[Kind.PUBLIC_DECRYPT, Status.COMPLETED][0]
        for number, state in enumerate(DeliveryState):
            ended = state is not DeliveryState.WAITING
            models.WebhookDelivery.objects.create(
                public_id=uuid.UUID(bytes=self.bytes(16), version=4),
                webhook_id=self.webhook.pk,
                event="request.completed",
                kind=Kind.PUBLIC_DECRYPT.value,
                subject_id=row.pk,
                subject=str(row.ext_job_id),
                occurred_at=self.now - timedelta(seconds=number),
                state=state.value,
                attempts=3,
                last_attempt_at=self.now,
                last_status=200 if state is DeliveryState.DELIVERED else 503,
                last_error=None if state is DeliveryState.DELIVERED else "the receiver answered 503",
                delivered_at=self.now if state is DeliveryState.DELIVERED else None,
                ended_at=self.now if ended else None,
            )

    def observe(self, intent: Intent) -> None:
        """The log's view of a payment, and a finding about it."""
        shown: dict[str, Any] = {"source_id": 1, "position": 81_300 << 20, "ref": intent.ref, "tx_hash": intent.tx_hash}
        models.PaymentObservation.objects.create(
            **shown,
            token=bytes.fromhex(intent.token[2:]),
            authorizer=bytes.fromhex(intent.payer[2:]),
            payee=bytes.fromhex(intent.merchant[2:]),
            amount=Decimal(intent.amount),
            block_hash=self.bytes(32),
        )
        models.ReconFinding.objects.create(
            **shown, kind="paid_twice", intent_id=intent.id, detail={"settled_by": "0xaa"}
        )

    def request(self, kind: Kind, status: Status, index: int = 0, body: dict[str, Any] | None = None) -> Any:
        """One request with payload, client view, transitions, and what its state implies."""
        entered = self.now - timedelta(seconds=self.random.randint(1, 4000))
        has_reference = status in (Status.RECEIPT_RECEIVED, Status.COMPLETED, Status.TIMED_OUT)
        columns: dict[str, Any] = {
            "ext_job_id": uuid.UUID(bytes=self.bytes(16), version=4),
            "int_job_id": self.bytes(32),
            "status": status.value,
            "created_at": entered - timedelta(seconds=60),
            "updated_at": entered,
            "state_entered_at": entered,
            "gw_reference_id": (b"\x02" + self.bytes(31)) if has_reference else None,
            "gw_req_tx_hash": self.bytes(32) if "prepare_send" in _WAY[status] else None,
            "receipt_block": 81_234 + index if has_reference else None,
            "completed_at": entered if status in FINAL else None,
            "deadline_at": None if status in FINAL else entered + timedelta(minutes=70),
        }
        if status is Status.FAILURE:
            columns |= {
                "fail_label": "not_allowed_on_host_acl",
                "fail_detail": "The host chain's ACL denied handle 1 of 2.",
            }
        if status is Status.TIMED_OUT:
            columns |= {
                "fail_label": "response_timed_out",
                "fail_detail": "No answer within 1800 s; the chain has none.",
            }
        columns |= self._kind_columns(kind, status)
        row = _MODELS[kind].objects.create(**columns)
        models.RequestPayload.objects.create(kind=kind, request_id=row.pk, body=body or self.body(kind))
        models.RequestClient.objects.create(
            client_id=self.client.pk, kind=kind, request_id=row.pk, ext_job_id=row.ext_job_id
        )
        self._history(kind, row, status)
        return row

    def _kind_columns(self, kind: Kind, status: Status) -> dict[str, Any]:
        done = status is Status.COMPLETED
        if kind is Kind.USER_DECRYPT:
            return {"req_type": self.random.choice(list(ReqType)).value, "resolved_threshold": 9 if done else None}
        answer = {"signatures": [f"0x{self.bytes(65).hex()}" for _ in range(2)], "extra_data": "0x00"}
        if kind is Kind.PUBLIC_DECRYPT:
            return {"res": {"decrypted_value": f"0x{self.bytes(64).hex()}", **answer} if done else None}
        handles = [f"0x{self.bytes(32).hex()}"]
        return {
            "int_request_id": uuid.UUID(bytes=self.bytes(16), version=4),
            "accepted": self.random.random() > 0.3 if done else None,
            "res": {"handles": handles, **answer} if done else None,
        }

    def body(self, kind: Kind) -> dict[str, Any]:
        """A canonical payload."""
        contract, user = f"0x{self.bytes(20).hex()}", f"0x{self.bytes(20).hex()}"
        if kind is Kind.PUBLIC_DECRYPT:
            return {"handles": [f"0x{self.bytes(32).hex()}" for _ in range(2)], "extra_data": "0x00"}
        if kind is Kind.INPUT_PROOF:
            proof = f"0x{self.bytes(4_000).hex()}"
            return {
                "contract_chain_id": "8009",
                "contract": contract,
                "user": user,
                "ciphertext": proof,
                "extra_data": "0x00",
            }
        return {
            "type": "user_decrypt",
            "handles": [{"handle": f"0x{self.bytes(32).hex()}", "contract": contract} for _ in range(2)],
            "start_timestamp": "1790000000",
            "duration_days": "10",
            "contracts_chain_id": "8009",
            "contracts": [contract],
            "user": user,
            "signature": f"0x{self.bytes(65).hex()}",
            "public_key": f"0x{self.bytes(800).hex()}",
            "extra_data": "0x00",
        }

    def _history(self, kind: Kind, row: Any, status: Status) -> None:
        before: Status | None = None
        at = row.created_at
        for verb in ["submit", *_WAY[status]]:
            target = _TARGET.get(verb, INITIAL[kind])
            if verb == "admit" and kind is Kind.INPUT_PROOF:
                continue
            models.RequestTransition.objects.create(
                kind=kind,
                request_id=row.pk,
                verb=verb,
                from_status=before,
                to_status=target,
                actor="api" if verb == "submit" else "chain" if verb in ("record_receipt", "complete") else "worker",
                epoch=7 if verb == "prepare_send" else None,
                reason="no receipt before the deadline" if verb == "park" else None,
                tx_hash=row.gw_req_tx_hash if verb in ("prepare_send", "record_receipt") else None,
                at=at,
            )
            before, at = target, at + timedelta(seconds=11)
        if row.gw_req_tx_hash:
            self._sent(kind, row, status)
        if kind is Kind.USER_DECRYPT and row.gw_reference_id:
            self._shares(row, 13 if status is Status.COMPLETED else 5)
        if status is Status.NEEDS_REVIEW:
            self._review(kind, row)
        if status in (Status.QUEUED, Status.PROCESSING):
            self._job(kind, row, status)

    def _sent(self, kind: Kind, row: Any, status: Status) -> None:
        signer = self.signers[0]
        nonce = self.nonces[signer.pk]
        self.nonces[signer.pk] += 1
        mined = status not in (Status.TX_IN_FLIGHT, Status.NEEDS_REVIEW)
        models.NonceSlot.objects.create(
            signer_id=signer.pk,
            nonce=nonce,
            kind=kind,
            subject_id=row.pk,
            state="final" if mined else "live",
            opened_epoch=7,
            winner_hash=row.gw_req_tx_hash if mined else None,
        )
        attempts = (
            [("final", None, None)]
            if mined
            else [("replaced", None, None), ("unknown", "timeout", "no answer from the node")]
        )
        for seq, (state, error_class, error_text) in enumerate(attempts):
            models.TxAttempt.objects.create(
                signer_id=signer.pk,
                nonce=nonce,
                seq=seq,
                tx_hash=row.gw_req_tx_hash if seq == len(attempts) - 1 else self.bytes(32),
                raw_tx=self.bytes(300),
                max_fee_per_gas=Decimal(1_500_000_000 + seq * 300_000_000),
                max_priority_fee=Decimal(1_000_000),
                gas_limit=812_345,
                state=state,
                error_class=error_class,
                error_text=error_text,
                epoch=7,
                send_count=1 + seq,
                last_sent_at=row.state_entered_at,
                block_number=row.receipt_block,
                receipt_status=1 if mined else None,
            )

    def _shares(self, row: Any, count: int) -> None:
        models.GatewayRef.objects.create(
            gw_reference_id=row.gw_reference_id, n=count, threshold=9, kind=Kind.USER_DECRYPT, request_id=row.pk
        )
        models.UserDecryptShare.objects.bulk_create(
            models.UserDecryptShare(
                gw_reference_id=row.gw_reference_id,
                share_index=index,
                share=self.bytes(400),
                kms_signature=self.bytes(65),
                extra_data=b"\x00",
                tx_hash=self.bytes(32),
                position=(row.receipt_block + 1) << 20 | index,
            )
            for index in range(count)
        )

    def _review(self, kind: Kind, row: Any) -> None:
        codes = list(ReasonCode)
        code = codes[len(self.cases) % len(codes)]
        self.cases.append(
            models.ReviewCase.objects.create(
                kind=kind,
                subject_id=row.pk,
                reason_code=code.value,
                evidence={"asked_endpoints": 1, "latest_nonce": 1201, "note": HOSTILE, "block": 81299},
                opened_at=row.state_entered_at,
            )
        )

    def _job(self, kind: Kind, row: Any, status: Status) -> None:
        leased = self.random.random() < 0.3
        models.QueueJob.objects.create(
            queue="ready" if status is Status.QUEUED else "send",
            job_key=f"{kind.value}/{row.pk}",
            kind=kind,
            subject_id=row.pk,
            tenant_id=self.client.pk,
            attempt=self.random.randint(0, 4),
            leased_by="web-1:4711" if leased else None,
            visible_at=self.now + timedelta(seconds=25 if leased else -self.random.randint(0, 90)),
        )
