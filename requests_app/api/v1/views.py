"""The routes of /v1 (design 3.4)."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from requests_app import selectors
from requests_app.api import intake
from requests_app.api.auth import Client, authenticate, unauthorized
from requests_app.api.jobs import is_pending, job, not_found, parse_job_id, seconds_until_poll
from requests_app.api.labels import NOT_CANCELABLE_TEXT, Label
from requests_app.api.refusals import Detail, Refused, validation_failed
from requests_app.api.submitting import accept
from requests_app.api.v1 import documented, rows
from requests_app.api.v1.problems import ProblemView
from requests_app.api.view import json_response
from requests_app.api.waiting import LONGEST_SECONDS, watch
from requests_app.selectors import JobView
from requests_app.services import CancelOutcome, SubmitOutcome, cancel
from requests_app.states import Kind
from requests_app.store.session import retry_serialization, web_connection

_SECONDS: Final = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,3})?").fullmatch


class SubmitView(ProblemView):
    """POST of one request kind."""

    http_method_names: Any = ("post",)
    reader: ClassVar[staticmethod[[bytes], intake.Intake]]

    def post(self, request: HttpRequest) -> HttpResponse:
        """Store the request or join the one with the same content: 202, with the answer when there is one already."""
        taken = accept(request, type(self).reader)
        kind = taken.intake.kind
        completed = None
        if taken.submitted.outcome is SubmitOutcome.DUPLICATE_COMPLETED:
            view = job(taken.client, taken.ext_job_id, kind)
            completed = None if is_pending(view) else view
        response = json_response(202, rows.accepted(taken, completed), taken.retry_after())
        response.headers["Location"] = f"/v1/{kind.slug}/{taken.ext_job_id}"
        return response


class JobStatusView(ProblemView):
    """GET of a job of one kind."""

    kind: ClassVar[Kind]

    def get(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """The row; `?wait=` seconds (at most 25) holds the answer back until the job is final."""
        client = authenticate(request)
        ext_job_id = job_id_of(job_id)
        seconds = wait_seconds(request.GET.get("wait"))
        view = job(client, ext_job_id, self.kind, placed=True)
        if seconds and is_pending(view):
            watch.wait((view.kind, view.request_id), seconds)
            view = job(client, ext_job_id, self.kind, placed=True)
        return row_response(view)


def row_response(view: JobView) -> HttpResponse:
    """A job with the status of its state."""
    return json_response(rows.http_status(view), rows.row(view), seconds_until_poll(view) if is_pending(view) else None)


def job_id_of(text: str) -> UUID:
    """The id in the path. Raises Refused(validation_failed)."""
    ext_job_id = parse_job_id(text)
    if ext_job_id is None:
        raise validation_failed([Detail("job_id", "Must be a UUID")])
    return ext_job_id


def wait_seconds(text: str | None) -> float:
    """The value of `?wait=`, capped at 25 seconds; 0 when absent. Raises Refused(validation_failed)."""
    if text is None:
        return 0.0
    if not _SECONDS(text):
        raise validation_failed([Detail("wait", "Must be a number of seconds")])
    return min(float(text), LONGEST_SECONDS)


@documented.submit("input-proof", documented.INPUT_PROOF)
class InputProof(SubmitView):
    """Submit a ciphertext with its zero-knowledge proof for verification."""

    reader = staticmethod(intake.input_proof)


@documented.submit("public-decrypt", documented.PUBLIC_DECRYPT)
class PublicDecrypt(SubmitView):
    """Submit a public decryption."""

    reader = staticmethod(intake.public_decrypt)


@documented.submit("user-decrypt", documented.USER_DECRYPT)
class UserDecrypt(SubmitView):
    """Submit a user decryption: direct, delegated or unified, recognised by its keys."""

    reader = staticmethod(intake.any_user_decrypt)


@documented.poll("input-proof")
class InputProofJob(JobStatusView):
    """An input proof."""

    kind = Kind.INPUT_PROOF


@documented.poll("public-decrypt")
class PublicDecryptJob(JobStatusView):
    """A public decryption."""

    kind = Kind.PUBLIC_DECRYPT


@documented.poll("user-decrypt")
class UserDecryptJob(JobStatusView):
    """A user decryption."""

    kind = Kind.USER_DECRYPT


@documented.timeline
class Timeline(ProblemView):
    """The history of a job."""

    def get(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """Every transition, oldest first."""
        view = job(authenticate(request), job_id_of(job_id))
        entries = selectors.timeline(web_connection(), view.kind, view.request_id)
        return json_response(200, rows.timeline(view, entries))


@documented.cancel
class Cancel(ProblemView):
    """Withdrawal of a job."""

    http_method_names: Any = ("post",)

    def post(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """Withdraw the request while no transaction carries it. On a row shared with others only this view ends."""
        client = authenticate(request)
        ext_job_id = job_id_of(job_id)
        outcome = retry_serialization(lambda: cancel(web_connection(), client_id=client.id, ext_job_id=ext_job_id))
        return self._answer(client, ext_job_id, outcome)

    @staticmethod
    def _answer(client: Client, ext_job_id: UUID, outcome: CancelOutcome) -> HttpResponse:
        if outcome is CancelOutcome.NOT_FOUND:
            raise not_found()
        if outcome is CancelOutcome.ACCOUNT_DISABLED:
            raise unauthorized()
        view = job(client, ext_job_id)
        # A second cancel of the same job is not a conflict: it is withdrawn, as asked.
        if outcome is CancelOutcome.TOO_LATE and view.canceled_at is None:
            raise Refused(Label.NOT_CANCELABLE, NOT_CANCELABLE_TEXT)
        return json_response(200, rows.row(view))
