"""All routes of the API. The site includes them at the root; operations routes are the site's own."""

from __future__ import annotations

from typing import Final

from django.urls import URLPattern, path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView

from requests_app.api.admin_config import AdminConfig
from requests_app.api.openapi.document import openapi_json
from requests_app.api.v1 import views as v1
from requests_app.api.v1.envelopes import Envelopes, PublicationStatus
from requests_app.api.v1.payments import Authorize, CancelPayment, Payment, Payments, PaymentTimeline
from requests_app.api.v1.problems import unknown_path
from requests_app.api.v1.usage import Usage
from requests_app.api.v1.webhooks import OneWebhook, WebhookDeliveries, Webhooks, WebhookSecret, WebhookTest
from requests_app.api.v2 import views as v2
from requests_app.api.view import empty_not_found

api_patterns: Final[list[URLPattern]] = [
    path("v2/input-proof", v2.InputProof.as_view()),
    path("v2/input-proof/<str:job_id>", v2.InputProofJob.as_view()),
    path("v2/public-decrypt", v2.PublicDecrypt.as_view()),
    path("v2/public-decrypt/<str:job_id>", v2.PublicDecryptJob.as_view()),
    path("v2/user-decrypt", v2.UserDecrypt.as_view()),
    path("v2/user-decrypt/<str:job_id>", v2.UserDecryptJob.as_view()),
    path("v2/delegated-user-decrypt", v2.DelegatedUserDecrypt.as_view()),
    path("v2/delegated-user-decrypt/<str:job_id>", v2.DelegatedUserDecryptJob.as_view()),
    path("v2/keyurl", v2.KeyUrl.as_view()),
    path("v3/user-decrypt", v2.UnifiedUserDecrypt.as_view()),
    path("v3/user-decrypt/<str:job_id>", v2.UnifiedUserDecryptJob.as_view()),
    path("v1/input-proof", v1.InputProof.as_view()),
    path("v1/input-proof/<str:job_id>", v1.InputProofJob.as_view()),
    path("v1/public-decrypt", v1.PublicDecrypt.as_view()),
    path("v1/public-decrypt/<str:job_id>", v1.PublicDecryptJob.as_view()),
    path("v1/user-decrypt", v1.UserDecrypt.as_view()),
    path("v1/user-decrypt/<str:job_id>", v1.UserDecryptJob.as_view()),
    path("v1/requests/<str:job_id>/timeline", v1.Timeline.as_view()),
    path("v1/requests/<str:job_id>/cancel", v1.Cancel.as_view()),
    path("v1/envelopes", Envelopes.as_view()),
    path("v1/envelopes/<str:job_id>", PublicationStatus.as_view()),
    path("v1/payment-intents", Payments.as_view()),
    path("v1/payment-intents/<str:intent_id>", Payment.as_view()),
    path("v1/payment-intents/<str:intent_id>/timeline", PaymentTimeline.as_view()),
    path("v1/payment-intents/<str:intent_id>/authorize", Authorize.as_view()),
    path("v1/payment-intents/<str:intent_id>/cancel", CancelPayment.as_view()),
    path("v1/usage", Usage.as_view()),
    path("v1/webhooks", Webhooks.as_view()),
    path("v1/webhooks/<str:webhook_id>", OneWebhook.as_view()),
    path("v1/webhooks/<str:webhook_id>/secret", WebhookSecret.as_view()),
    path("v1/webhooks/<str:webhook_id>/test", WebhookTest.as_view()),
    path("v1/webhooks/<str:webhook_id>/deliveries", WebhookDeliveries.as_view()),
]

# Paths below a version prefix answer in its form; without these the site would print HTML, or redirect to a slash.
fallback_patterns: Final[list[URLPattern]] = [
    re_path(r"^v[23](?:/.*)?$", empty_not_found),
    re_path(r"^v1(?:/.*)?$", unknown_path),
]

urlpatterns: Final[list[URLPattern]] = [
    *api_patterns,
    path("openapi.json", openapi_json, name="openapi"),
    path("admin/config", AdminConfig.as_view()),  # before the admin site, which would take it
    path("docs", SpectacularSwaggerSplitView.as_view(url="/openapi.json"), name="docs"),
    *fallback_patterns,
]
