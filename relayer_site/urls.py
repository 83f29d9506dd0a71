"""URLs of the site: operations endpoints, the API, the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from relayer_site.login import login

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("relayer_site.ops_urls")),
    path("", include("requests_app.api.urls")),
    path("admin/login/", login),  # the admin's own page, with the status of a refusal
    path("admin/", admin.site.urls),
]
