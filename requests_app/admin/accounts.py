"""Clients and their keys, and the people of the desk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from requests_app.admin import cells
from requests_app.admin.base import ExtraPages, RecordAdmin
from requests_app.admin.client_deeds import carry_out, create, creation_form, deed_sections, may_manage
from requests_app.admin.page import Facts, Section, Table
from requests_app.admin.webhooks import client_webhooks
from requests_app.models import Account, ApiKey, RequestClient
from requests_app.states import REQUEST_KINDS

NEWEST: Final = 20


def key_state(key: ApiKey) -> Any:
    """Whether a key opens the door."""
    return cells.toned("revoked", "bad") if key.revoked_at else cells.toned("valid", "good")


def newest_views(client_id: int) -> list[RequestClient]:
    """The newest requests of a client: of each kind by its key, since no index orders them all."""
    views = RequestClient.objects.filter(client_id=client_id)
    found = [one for kind in REQUEST_KINDS for one in views.filter(kind=kind).order_by("-request_id")[:NEWEST]]
    return sorted(found, key=lambda view: view.created_at, reverse=True)[:NEWEST]


@admin.register(Account)
class AccountAdmin(ExtraPages, RecordAdmin):
    """Clients of the relayer and what may be done with them: see `client_deeds`. `manage.py relayer_account` does the same."""

    list_display = ("name", "state", "created")
    list_filter = ("status",)
    search_fields = ("=name",)
    search_help_text = "Name (exact)"
    ordering = ("-id",)
    extra_pages = (("create/", "relayer_account_create", "create_view"),)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list, with the way to a new client for those who may make one."""
        links = [("New client", reverse("admin:relayer_account_create"), False)] if may_manage(request) else []
        return super().changelist_view(request, {**(extra_context or {}), "list_links": links})

    def create_view(self, request: HttpRequest) -> HttpResponse:
        """A form for a new client; after the POST its first key, this once."""
        if not may_manage(request):
            raise PermissionDenied
        sections: list[Section] = [creation_form(request)]
        if request.method == "POST":
            made = create(request, self)
            sections = made or sections
        links = [("All clients", reverse("admin:requests_app_account_changelist"))]
        return self.render_page(request, "New client", {"sections": sections, "links": links})

    def act(self, request: HttpRequest, obj: Any) -> HttpResponse | None:
        """Disable, enable, issue, rotate, revoke. A new key is on the answer itself and nowhere else."""
        if not may_manage(request):
            raise PermissionDenied
        secret = carry_out(request, self, obj)
        if secret is None:
            return HttpResponseRedirect(self.page_url(obj))
        context = {"sections": [secret, *self.sections(request, obj)], "links": self.links(request, obj)}
        return self.render_page(request, self.page_title(obj), context)

    @display(description="Status")
    def state(self, obj: Account) -> Any:
        """Active or disabled."""
        return cells.badge(obj.status)

    @display(description="Created")
    def created(self, obj: Account) -> Any:
        """When it was made."""
        return cells.short_moment(obj.created_at)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """The account, what may be done with it, its keys, its newest requests, who did what."""
        keys = list(ApiKey.objects.filter(account=obj).order_by("-id")[:50])
        views = newest_views(obj.pk)
        return [
            Facts(
                "Account",
                [
                    ("Name", obj.name),
                    ("Status", cells.badge(obj.status)),
                    ("Its keys change runtime settings", cells.plain(obj.operator)),
                    ("Created", cells.moment(obj.created_at)),
                ],
            ),
            Table(
                "Keys",
                ("Prefix", "State", "Issued", "Last used", "Revoked"),
                [
                    (
                        f"{k.prefix}…",
                        key_state(k),
                        cells.short_moment(k.created_at),
                        cells.short_moment(k.last_used_at),
                        cells.short_moment(k.revoked_at),
                    )
                    for k in keys
                ],
                "No key was issued.",
            ),
            Table(
                "Newest requests",
                ("Request", "Job id", "Asked", "Withdrawn"),
                [
                    (
                        cells.subject(v.kind, v.request_id),
                        cells.code(str(v.ext_job_id), 34),
                        cells.short_moment(v.created_at),
                        cells.short_moment(v.canceled_at),
                    )
                    for v in views
                ],
                "It has not asked for anything.",
            ),
            client_webhooks(request, obj.pk),
            *deed_sections(request, obj, keys),
        ]


@admin.register(ApiKey)
class KeyAdmin(RecordAdmin):
    """Keys. The database holds only their digests, and not even those are shown."""

    list_display = ("prefix", "account", "state", "issued", "used")
    list_select_related = ("account",)
    search_fields = ("=prefix",)
    search_help_text = "Prefix (exact)"
    ordering = ("-id",)

    @display(description="State")
    def state(self, obj: ApiKey) -> Any:
        """Valid or revoked."""
        return key_state(obj)

    @display(description="Issued")
    def issued(self, obj: ApiKey) -> Any:
        """When it was made."""
        return cells.short_moment(obj.created_at)

    @display(description="Last used")
    def used(self, obj: ApiKey) -> Any:
        """When it last opened the door (sampled)."""
        return cells.age(obj.last_used_at)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """The key's life; no digest."""
        facts = [
            ("Prefix", f"{obj.prefix}…"),
            ("Account", obj.account.name),
            ("State", key_state(obj)),
            ("Issued", cells.moment(obj.created_at)),
            ("Last used", cells.moment(obj.last_used_at)),
            ("Revoked", cells.moment(obj.revoked_at)),
        ]
        return [Facts("Key", facts)]


admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg]
    """People who may log in; superusers only, by Django's permissions.

    A name stays whose it was, and nobody is deleted but disabled: decisions and holds name their people, and whoever proposed under another
    name would be somebody else to the check of the second person. With a person the log of their deeds would go, too.
    """

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    filter_horizontal = ()  # two boxes side by side are wider than a page of 1280 px

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        """The name, once there is one."""
        return (*super().get_readonly_fields(request, obj), *(("username",) if obj else ()))

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Nobody: see above."""
        return False


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    """The roles: viewer, operator, approver."""
