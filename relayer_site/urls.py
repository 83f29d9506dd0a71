"""URLs of the site: the API, the admin, documentation and operations endpoints."""

from __future__ import annotations

from importlib.util import find_spec

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("relayer_site.ops_urls")),
    path("admin/", admin.site.urls),
]
if find_spec("requests_app.api") and find_spec("requests_app.api.urls"):
    urlpatterns.insert(0, path("", include("requests_app.api.urls")))
