"""Tries to log in to the desk, counted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0019_source_cases")]

    operations = [
        migrations.CreateModel(
            name="DeskLoginCount",
            fields=[
                ("key", models.TextField(primary_key=True, serialize=False)),
                ("opened_at", models.DateTimeField()),
                ("tries", models.IntegerField()),
            ],
            options={
                "db_table": "desk_login_count",
                "indexes": [models.Index(fields=["opened_at"], name="desk_login_opened")],
            },
        ),
    ]
