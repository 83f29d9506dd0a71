"""Bands of the envelope log are made with fewer catalogue changes; usage that a bill has claimed has a place of its own."""

from django.db import migrations, models

import requests_app.fields
from requests_app.sql import ddl

_FIRST = ddl("envelopes")
BEFORE = _FIRST[_FIRST.index("CREATE FUNCTION attach_envelope_partition") :]


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0008_payments")]

    operations = [
        migrations.CreateModel(
            name="UsageBilled",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "payer",
                        "source_id",
                        "minute",
                        "reference",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("payer", models.BigIntegerField()),
                ("source_id", models.IntegerField()),
                ("minute", models.BigIntegerField()),
                ("reference", models.TextField()),
                ("spend", models.BigIntegerField()),
                ("messages", models.BigIntegerField()),
                ("last_position", models.BigIntegerField()),
                ("billed_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "verbose_name": "billed usage",
                "verbose_name_plural": "billed usage",
                "db_table": "usage_billed",
            },
        ),
        migrations.RunSQL(ddl("bands"), ddl("bands_drop") + BEFORE),
    ]
