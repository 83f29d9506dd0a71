"""Usage, congestion and publication of the envelope log; keys of list cursors."""

from django.db import migrations, models

import requests_app.fields
from requests_app.sql import ddl


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0004_transaction_manager")]

    operations = [
        migrations.CreateModel(
            name="CursorKey",
            fields=[
                ("version", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("secret", models.BinaryField()),
                ("created_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                ("retired_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "cursor_key",
            },
        ),
        migrations.CreateModel(
            name="EnvelopeMiss",
            fields=[
                ("source_id", models.IntegerField(primary_key=True, serialize=False)),
                ("misses", models.BigIntegerField(db_default=0)),
                ("last_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "db_table": "envelope_miss",
            },
        ),
        migrations.CreateModel(
            name="OriginatorCongestion",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "source_id", "minute", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("source_id", models.IntegerField()),
                ("minute", models.BigIntegerField()),
                ("messages", models.BigIntegerField()),
            ],
            options={
                "db_table": "originator_congestion",
            },
        ),
        migrations.CreateModel(
            name="UsageUnsettled",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "payer", "source_id", "minute", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("payer", models.BigIntegerField()),
                ("source_id", models.IntegerField()),
                ("minute", models.BigIntegerField()),
                ("spend", models.BigIntegerField()),
                ("messages", models.BigIntegerField()),
                ("last_position", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "unsettled usage",
                "verbose_name_plural": "unsettled usage",
                "db_table": "usage_unsettled",
            },
        ),
        migrations.CreateModel(
            name="PublishedEnvelope",
            fields=[
                ("ext_id", models.UUIDField(primary_key=True, serialize=False)),
                ("client_id", models.BigIntegerField()),
                ("source_id", models.IntegerField()),
                ("position", models.BigIntegerField()),
                ("published_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "db_table": "published_envelope",
                "indexes": [models.Index(fields=["source_id", "position"], name="published_envelope_place")],
            },
        ),
        migrations.CreateModel(
            name="PublisherHead",
            fields=[
                ("source_id", models.IntegerField(primary_key=True, serialize=False)),
                ("last", models.BigIntegerField(db_default=0)),
            ],
            options={
                "db_table": "publisher_head",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("last__gte", 0)), name="publisher_head_not_negative")
                ],
            },
        ),
        migrations.CreateModel(
            name="StagedEnvelope",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("ext_id", models.UUIDField(unique=True)),
                ("client_id", models.BigIntegerField()),
                ("topic", models.BinaryField()),
                ("payload", models.BinaryField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("staged_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                ("attempts", models.IntegerField(db_default=0)),
                ("parked_at", models.DateTimeField(null=True)),
                ("error_class", models.TextField(null=True)),
                ("error", models.TextField(null=True)),
            ],
            options={
                "db_table": "staged_envelope",
                "indexes": [
                    models.Index(condition=models.Q(("parked_at", None)), fields=["id"], name="staged_envelope_waiting")
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageSettled",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reference", models.TextField()),
                ("payer", models.BigIntegerField()),
                ("source_id", models.IntegerField()),
                ("minute", models.BigIntegerField()),
                ("spend", models.BigIntegerField()),
                ("messages", models.BigIntegerField()),
                ("last_position", models.BigIntegerField()),
                ("settled_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "verbose_name": "settled usage",
                "verbose_name_plural": "settled usage",
                "db_table": "usage_settled",
                "indexes": [models.Index(fields=["payer", "id"], name="usage_settled_payer")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("reference", "payer", "source_id", "minute"), name="usage_settled_once"
                    )
                ],
            },
        ),
        migrations.RunSQL(ddl("accounting"), ddl("accounting_drop")),
    ]
