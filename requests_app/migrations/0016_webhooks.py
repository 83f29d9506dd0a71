"""Webhooks and their outbox, which the database fills in the transactions that end requests and payments."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

import requests_app.fields
from requests_app.sql import ddl


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0015_missing_nonces"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("public_id", models.UUIDField(db_default=requests_app.fields.RandomUUID(), unique=True)),
                ("webhook_id", models.BigIntegerField()),
                ("event", models.TextField()),
                (
                    "kind",
                    models.SmallIntegerField(
                        choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")],
                        null=True,
                    ),
                ),
                ("subject_id", models.BigIntegerField(null=True)),
                ("subject", models.TextField(null=True)),
                ("occurred_at", models.DateTimeField()),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("waiting", "waiting"),
                            ("delivered", "delivered"),
                            ("failed", "failed"),
                            ("dropped", "dropped"),
                        ],
                        db_default="waiting",
                    ),
                ),
                ("attempts", models.IntegerField(db_default=0)),
                (
                    "next_attempt_at",
                    models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False),
                ),
                ("leased_by", models.TextField(null=True)),
                ("last_attempt_at", models.DateTimeField(null=True)),
                ("last_status", models.SmallIntegerField(null=True)),
                ("last_error", models.TextField(null=True)),
                ("delivered_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "verbose_name": "webhook delivery",
                "verbose_name_plural": "webhook deliveries",
                "db_table": "webhook_delivery",
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "waiting")),
                        fields=["webhook_id", "next_attempt_at"],
                        name="webhook_delivery_due",
                    ),
                    models.Index(
                        condition=models.Q(("state", "waiting")), fields=["created_at"], name="webhook_delivery_waiting"
                    ),
                    models.Index(
                        condition=models.Q(("state", "waiting"), _negated=True),
                        fields=["ended_at"],
                        name="webhook_delivery_ended",
                    ),
                    models.Index(fields=["webhook_id", "-id"], name="webhook_delivery_log"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["waiting", "delivered", "failed", "dropped"])),
                        name="webhook_delivery_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("state", "waiting")),
                            models.Q(("ended_at__isnull", False), models.Q(("state", "waiting"), _negated=True)),
                            _connector="OR",
                        ),
                        name="webhook_delivery_ended_or_waiting",
                    ),
                    models.UniqueConstraint(
                        fields=("kind", "subject_id", "webhook_id", "event", "occurred_at"),
                        name="webhook_delivery_once",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Webhook",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("public_id", models.TextField(unique=True)),
                ("url", models.TextField()),
                ("description", models.TextField(db_default="")),
                ("events", django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                (
                    "kinds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(
                            choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
                        ),
                        size=None,
                    ),
                ),
                ("secret", models.BinaryField(null=True)),
                ("former_secret", models.BinaryField(null=True)),
                ("former_until", models.DateTimeField(null=True)),
                (
                    "state",
                    models.TextField(
                        choices=[("enabled", "enabled"), ("paused", "paused"), ("removed", "removed")],
                        db_default="enabled",
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                ("updated_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="requests_app.account"
                    ),
                ),
            ],
            options={
                "db_table": "webhook",
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "removed"), _negated=True),
                        fields=["account", "id"],
                        name="webhook_account",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["enabled", "paused", "removed"])), name="webhook_state_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("former_secret__isnull", True), ("secret__isnull", True), ("state", "removed")),
                            models.Q(("secret__isnull", False), models.Q(("state", "removed"), _negated=True)),
                            _connector="OR",
                        ),
                        name="webhook_secret_unless_removed",
                    ),
                ],
            },
        ),
        migrations.RunSQL(ddl("webhooks"), ddl("webhooks_drop")),
    ]
