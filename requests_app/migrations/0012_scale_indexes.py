"""Every page reads a bounded number of rows: indexes of the desk's lists and searches, and figures of what waits.

Not one transaction: on the tables that grow, indexes are made while everything works.
"""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("requests_app", "0011_journal_guards")]

    operations = [
        migrations.CreateModel(
            name="JobFigure",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "queue", "kind", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("queue", models.TextField()),
                ("kind", models.SmallIntegerField()),
                ("n", models.BigIntegerField()),
                ("leased", models.BigIntegerField()),
                ("visible", models.BigIntegerField()),
                ("oldest_visible_at", models.DateTimeField(null=True)),
                ("highest_attempt", models.IntegerField()),
            ],
            options={
                "db_table": "job_figure",
            },
        ),
        migrations.CreateModel(
            name="LiveFigure",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "kind", "status", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "kind",
                    models.SmallIntegerField(
                        choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
                    ),
                ),
                ("status", models.TextField()),
                ("n", models.BigIntegerField()),
                ("overdue", models.BigIntegerField()),
                ("oldest_at", models.DateTimeField()),
            ],
            options={
                "db_table": "live_figure",
            },
        ),
        migrations.AddIndex(
            model_name="command",
            index=models.Index(fields=["target_kind", "target_id", "created_at"], name="command_target"),
        ),
        migrations.AddIndex(
            model_name="command",
            index=models.Index(fields=["created_at", "command_id"], name="command_created"),
        ),
        AddIndexConcurrently(
            model_name="inputproofrequest",
            index=models.Index(fields=["status", "id"], name="input_proof_req_status"),
        ),
        AddIndexConcurrently(
            model_name="publicdecryptrequest",
            index=models.Index(fields=["status", "id"], name="public_decrypt_req_status"),
        ),
        migrations.AddIndex(
            model_name="reviewcase",
            index=models.Index(fields=["status", "opened_at", "id"], name="review_case_status"),
        ),
        migrations.AddIndex(
            model_name="reviewcase",
            index=models.Index(fields=["opened_at", "id"], name="review_case_opened"),
        ),
        migrations.AddIndex(
            model_name="reviewcase",
            index=models.Index(fields=["kind", "subject_id"], name="review_case_subject"),
        ),
        AddIndexConcurrently(
            model_name="txattempt",
            index=models.Index(
                condition=models.Q(("state", "final"), _negated=True), fields=["state", "id"], name="tx_attempt_state"
            ),
        ),
        AddIndexConcurrently(
            model_name="userdecryptrequest",
            index=models.Index(fields=["status", "id"], name="user_decrypt_req_status"),
        ),
        RemoveIndexConcurrently(
            model_name="inputproofrequest",
            name="input_proof_req_active",
        ),
        RemoveIndexConcurrently(
            model_name="publicdecryptrequest",
            name="public_decrypt_req_active",
        ),
        migrations.RemoveIndex(
            model_name="reviewcase",
            name="review_case_open",
        ),
        RemoveIndexConcurrently(
            model_name="userdecryptrequest",
            name="user_decrypt_req_active",
        ),
    ]
