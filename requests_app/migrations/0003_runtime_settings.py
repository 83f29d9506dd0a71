"""Parameters that are changed while everything runs, their history, and accounts that may change them over HTTP."""

from django.db import migrations, models

import requests_app.fields
from requests_app.sql import ddl


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0002_envelope_log_and_guards")]

    operations = [
        migrations.CreateModel(
            name="RuntimeSetting",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("value", models.JSONField()),
                (
                    "updated_at",
                    models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False),
                ),
                ("updated_by", models.TextField()),
            ],
            options={"verbose_name": "runtime setting", "db_table": "runtime_setting"},
        ),
        migrations.CreateModel(
            name="RuntimeChange",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                ("changed_by", models.TextField()),
                ("reason", models.TextField()),
                ("at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "verbose_name": "runtime setting change",
                "db_table": "runtime_change",
                "indexes": [models.Index(fields=["name", "-id"], name="runtime_change_name")],
            },
        ),
        migrations.AddField(model_name="account", name="operator", field=models.BooleanField(db_default=False)),
        migrations.RunSQL(ddl("runtime"), ddl("runtime_drop")),
    ]
