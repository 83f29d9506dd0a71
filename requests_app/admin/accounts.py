"""Clients and their keys, and the people of the desk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from requests_app.admin import cells
from requests_app.admin.base import RecordAdmin
from requests_app.admin.page import Facts, Section, Table
from requests_app.models import Account, ApiKey, RequestClient


def key_state(key: ApiKey) -> Any:
    """Whether a key opens the door."""
    return cells.toned("revoked", "bad") if key.revoked_at else cells.toned("valid", "good")


@admin.register(Account)
class AccountAdmin(RecordAdmin):
    """Clients of the relayer. Made, disabled and given keys by `manage.py relayer_account`."""

    list_display = ("name", "state", "created")
    list_filter = ("status",)
    search_fields = ("=name",)
    search_help_text = "Name (exact)"
    ordering = ("-id",)

    @display(description="Status")
    def state(self, obj: Account) -> Any:
        """Active or disabled."""
        return cells.badge(obj.status)

    @display(description="Created")
    def created(self, obj: Account) -> Any:
        """When it was made."""
        return cells.short_moment(obj.created_at)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """The account, its keys, its newest requests."""
        keys = ApiKey.objects.filter(account=obj).order_by("-id")[:50]
        views = RequestClient.objects.filter(client_id=obj.pk).order_by("-created_at")[:20]
        return [
            Facts(
                "Account",
                [("Name", obj.name), ("Status", cells.badge(obj.status)), ("Created", cells.moment(obj.created_at))],
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
    """People who may log in; superusers only, by Django's permissions."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    """The roles: viewer, operator, approver."""
