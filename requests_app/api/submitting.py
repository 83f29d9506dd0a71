"""The POST pipeline that both faces share: read, validate, check, store (fhevm_http 7; the order decides which error wins)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest

from requests_app import metrics
from requests_app.api.auth import Client, authenticate, unauthorized
from requests_app.api.body import read_body
from requests_app.api.intake import Intake, Reader
from requests_app.api.labels import RATE_LIMITED_TEXT, Label
from requests_app.api.refusals import Refused
from requests_app.api.retry_after import pace
from requests_app.api.signatures import denial_of, precheck
from requests_app.config import config
from requests_app.identity import content_hash
from requests_app.services import Submission, SubmitOutcome, Submitted, submit
from requests_app.store.session import retry_serialization, web_connection


@dataclass(frozen=True, slots=True)
class Taken:
    """An accepted request: whose, what, the client's job id, and what the store said."""

    client: Client
    intake: Intake
    ext_job_id: UUID
    submitted: Submitted

    def retry_after(self) -> int:
        """Seconds for the Retry-After header of the 202."""
        now, kind = pace(), self.intake.kind
        raw = now.submit_raw_ms(kind, self.submitted.readiness_queue_size, self.submitted.tx_queue_size)
        metrics.raw_eta_seconds.labels(metrics.LABELS[kind]).observe(raw / 1000)
        return now.finish(raw)


def accept(request: HttpRequest, reader: Reader) -> Taken:
    """Store the request in `request`, or join the row that has the same content.

    Raises Refused with the first error of the pipeline; nothing is written then.
    """
    client = authenticate(request)
    intake = reader(read_body(request))
    check_host_chains(intake)
    precheck(intake)
    submission = Submission(
        intake.kind,
        intake.req_type,
        content_hash(intake.kind, intake.req_type, intake.body),
        intake.body,
        denial_of(intake),
    )
    submitted = retry_serialization(lambda: submit(web_connection(), submission, client_id=client.id))
    if submitted.outcome is SubmitOutcome.QUEUE_FULL:
        raise Refused(Label.RATE_LIMITED, RATE_LIMITED_TEXT, retry_after=pace().rate_limited_seconds)
    if submitted.outcome is SubmitOutcome.ACCOUNT_DISABLED or submitted.ext_job_id is None:
        raise unauthorized()
    result = "miss" if submitted.outcome is SubmitOutcome.INSERTED else "hit"
    metrics.request_cache.labels(metrics.LABELS[intake.kind], result).inc()
    return Taken(client, intake, submitted.ext_job_id, submitted)


def check_host_chains(intake: Intake) -> None:
    """Refuse handles of a chain that is not configured; the first one is named."""
    supported = config().host_chains if intake.handles else {}
    for chain_id in intake.host_chains():
        if chain_id not in supported:
            raise Refused(
                Label.HOST_CHAIN_ID_NOT_SUPPORTED, f"Host chain ID {chain_id} is not supported by this relayer"
            )
