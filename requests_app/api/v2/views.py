"""The routes of /v2 and /v3 (fhevm_http 1)."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse

from requests_app.api import intake
from requests_app.api.auth import authenticate
from requests_app.api.failures import refusal
from requests_app.api.jobs import is_pending, job, parse_job_id, seconds_until_poll
from requests_app.api.labels import KEYS_NOT_READY_TEXT, Label
from requests_app.api.refusals import Refused
from requests_app.api.submitting import accept
from requests_app.api.v2 import answers, documented
from requests_app.api.view import FaceView, json_response
from requests_app.selectors import JobView
from requests_app.states import Kind, Status
from requests_app.store.requests import published_key
from requests_app.store.session import web_connection


class EnvelopeView(FaceView):
    """Prints refusals as the failed envelope."""

    def refuse(self, request: HttpRequest, refused: Refused) -> HttpResponse:
        """The failed envelope with the label's status."""
        return answers.failed(refused)


class SubmitView(EnvelopeView):
    """POST of one request form."""

    http_method_names: Any = ("post",)
    reader: ClassVar[staticmethod[[bytes], intake.Intake]]

    def post(self, request: HttpRequest) -> HttpResponse:
        """Store the request, or join the one with the same content: 202 either way."""
        taken = accept(request, type(self).reader)
        return answers.accepted(taken.ext_job_id, taken.retry_after())


class JobStatusView(EnvelopeView):
    """GET of a job of one kind."""

    kind: ClassVar[Kind]

    def get(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """202 while the answer is to come, then the result or the error."""
        client = authenticate(request)
        ext_job_id = parse_job_id(job_id)
        if ext_job_id is None:
            return HttpResponse(
                "Invalid URL: job_id is not a UUID", status=400, content_type="text/plain; charset=utf-8"
            )
        return answer(job(client, ext_job_id, self.kind))


def answer(view: JobView) -> HttpResponse:
    """What GET says about a job."""
    if is_pending(view):
        return answers.pending(seconds_until_poll(view))
    if view.canceled_at is None and view.status is Status.COMPLETED:
        return answers.succeeded(answers.result_of(view))
    return answers.failed(refusal(view))


@documented.submit("input-proof", documented.INPUT_PROOF)
class InputProof(SubmitView):
    """Submit a ciphertext with its zero-knowledge proof for verification."""

    reader = staticmethod(intake.input_proof)


@documented.submit("public-decrypt", documented.PUBLIC_DECRYPT)
class PublicDecrypt(SubmitView):
    """Submit a public decryption."""

    reader = staticmethod(intake.public_decrypt)


@documented.submit("user-decrypt", documented.DIRECT)
class UserDecrypt(SubmitView):
    """Submit a user decryption that the user signed for itself."""

    reader = staticmethod(intake.direct)


@documented.submit("delegated-user-decrypt", documented.DELEGATED)
class DelegatedUserDecrypt(SubmitView):
    """Submit a user decryption that a delegate signed."""

    reader = staticmethod(intake.delegated)


@documented.submit("unified-user-decrypt", documented.UNIFIED)
class UnifiedUserDecrypt(SubmitView):
    """Submit a unified user decryption in its typed attestation envelope."""

    reader = staticmethod(intake.unified)


@documented.poll("input-proof", documented.INPUT_PROOF_RESULT)
class InputProofJob(JobStatusView):
    """Poll an input proof."""

    kind = Kind.INPUT_PROOF


@documented.poll("public-decrypt", documented.PUBLIC_DECRYPT_RESULT)
class PublicDecryptJob(JobStatusView):
    """Poll a public decryption."""

    kind = Kind.PUBLIC_DECRYPT


@documented.poll("user-decrypt", documented.USER_DECRYPT_RESULT)
class UserDecryptJob(JobStatusView):
    """Poll a user decryption of any form."""

    kind = Kind.USER_DECRYPT


@documented.poll("delegated-user-decrypt", documented.USER_DECRYPT_RESULT)
class DelegatedUserDecryptJob(UserDecryptJob):
    """Poll a user decryption of any form."""


@documented.poll("unified-user-decrypt", documented.USER_DECRYPT_RESULT)
class UnifiedUserDecryptJob(UserDecryptJob):
    """Poll a user decryption of any form."""


@documented.keyurl
class KeyUrl(EnvelopeView):
    """Where the FHE public key and the CRS are stored. Public material: no API key is asked for."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The current key and CRS, or the 500 form while the poller has not read any."""
        row = published_key(web_connection())
        if row is None:
            refused = Refused(Label.INTERNAL_SERVER_ERROR, KEYS_NOT_READY_TEXT)
            return answers.failed(refused, with_request_id=False)
        return json_response(200, {"status": "succeeded", "response": row.body})
