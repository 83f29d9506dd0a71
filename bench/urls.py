"""The site, and `/bench/echo`: a plain DRF view that parses a JSON body and renders it again."""

from __future__ import annotations

from typing import Any

from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class Echo(APIView):
    """As little as a DRF view can do."""

    def post(self, request: Request) -> Response:
        """The body."""
        return Response(request.data)

    def get(self, request: Request, **_: Any) -> Response:
        """A short document."""
        return Response({"status": "queued", "requestId": "00000000-0000-4000-8000-000000000000"})


urlpatterns = [path("bench/echo", Echo.as_view()), path("", include("relayer_site.urls"))]
