"""The three roles of the desk, as data, written to the database after every migration.

After and not in a migration: permissions of a table exist only once its migration has run, so a migration would miss
the tables that come later. Running it again changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps

VIEWER: Final = "viewer"
OPERATOR: Final = "operator"
APPROVER: Final = "approver"
VIEWED_APPS: Final = ("requests_app", "django_q")

# codename -> (model it hangs on, text). Every holder also may view everything.
DECISIONS: Final = {
    "decide_review": ("reviewcase", "Can decide review cases that one person may decide"),
    "approve_review": ("reviewcase", "Can confirm, as the second person, decisions that need two"),
    "pause_signer": ("signer", "Can pause and resume signers"),
    "manage_clients": ("account", "Can make, disable and enable clients, and issue and revoke their keys"),
    "change_runtime": ("runtimesetting", "Can change runtime settings"),
}
GRANTS: Final = {
    VIEWER: frozenset[str](),
    OPERATOR: frozenset({"decide_review", "pause_signer", "manage_clients", "change_runtime"}),
    APPROVER: frozenset({"decide_review", "approve_review", "pause_signer", "manage_clients", "change_runtime"}),
}


def sync_roles(using: str = "default", **_: Any) -> None:
    """Create the groups and give them exactly the permissions of the table above (post_migrate receiver)."""
    from django.contrib.auth.models import Group, Permission
    from django.contrib.contenttypes.models import ContentType

    app = apps.get_app_config("requests_app")
    for codename, (model, text) in DECISIONS.items():
        content_type = ContentType.objects.db_manager(using).get_for_model(app.get_model(model))
        Permission.objects.using(using).get_or_create(
            codename=codename, content_type=content_type, defaults={"name": text}
        )
    permissions = Permission.objects.using(using).filter(content_type__app_label__in=VIEWED_APPS)
    viewing = list(permissions.filter(codename__startswith="view_"))
    deciding = {permission.codename: permission for permission in permissions.filter(codename__in=DECISIONS)}
    for role, granted in GRANTS.items():
        group, _created = Group.objects.using(using).get_or_create(name=role)
        group.permissions.set([*viewing, *(deciding[codename] for codename in sorted(granted))])
