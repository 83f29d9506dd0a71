"""Reorganisations, kinds of attempts, decisions of reviewers."""

import django.db.models.deletion
from django.db import migrations, models

import requests_app.fields


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0003_runtime_settings")]

    operations = [
        migrations.CreateModel(
            name="ChainBlock",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "source_id", "block", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("source_id", models.IntegerField()),
                ("block", models.BigIntegerField()),
                ("hash", models.BinaryField()),
            ],
            options={
                "db_table": "chain_block",
            },
        ),
        migrations.CreateModel(
            name="ChainReorg",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source_id", models.IntegerField()),
                ("fork_block", models.BigIntegerField()),
                ("sealed", models.BigIntegerField()),
                ("old_hash", models.BinaryField(null=True)),
                ("new_hash", models.BinaryField()),
                ("envelopes", models.IntegerField(db_default=0)),
                ("withdrawn", models.IntegerField(db_default=0)),
                ("at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "db_table": "chain_reorg",
            },
        ),
        migrations.CreateModel(
            name="EnvelopeOrphan",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reorg_id", models.BigIntegerField()),
                ("source_id", models.IntegerField()),
                ("position", models.BigIntegerField()),
                ("kind", models.SmallIntegerField()),
                ("ref", models.BinaryField(null=True)),
                ("contract", models.BinaryField()),
                ("block_hash", models.BinaryField()),
                ("tx_hash", models.BinaryField()),
                ("digest", models.BinaryField()),
                ("payer", models.BigIntegerField(null=True)),
                ("recorded_at", models.DateTimeField()),
                ("payload", models.BinaryField(null=True)),
            ],
            options={
                "db_table": "envelope_orphan",
            },
        ),
        migrations.CreateModel(
            name="KeptShare",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("request_id", models.BigIntegerField()),
                ("share_index", models.IntegerField()),
                ("share", models.BinaryField()),
                ("kms_signature", models.BinaryField()),
                ("extra_data", models.BinaryField()),
                ("position", models.BigIntegerField()),
            ],
            options={
                "db_table": "kept_share",
            },
        ),
        migrations.CreateModel(
            name="ReorgEvidence",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reorg_id", models.BigIntegerField()),
                ("source_id", models.IntegerField()),
                ("kind", models.SmallIntegerField()),
                ("request_id", models.BigIntegerField()),
                ("event_kind", models.SmallIntegerField()),
                ("ref", models.BinaryField(null=True)),
                ("tx_hash", models.BinaryField()),
                ("fork_block", models.BigIntegerField()),
                ("after_block", models.BigIntegerField()),
                ("verdict", models.TextField(choices=[("returned", "returned"), ("vanished", "vanished")], null=True)),
                ("settled_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "reorg_evidence",
            },
        ),
        migrations.CreateModel(
            name="ReviewDecision",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.IntegerField()),
                (
                    "action",
                    models.TextField(
                        choices=[
                            ("resume", "resume"),
                            ("replace", "replace"),
                            ("cancel_nonce", "cancel nonce"),
                            ("resend", "resend"),
                            ("attach", "attach"),
                            ("fail", "fail"),
                            ("acknowledge", "acknowledge"),
                        ]
                    ),
                ),
                ("parameters", models.JSONField(default=dict)),
                ("reason", models.TextField()),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("awaiting_second", "awaiting second"),
                            ("commanded", "commanded"),
                            ("done", "done"),
                            ("withdrawn", "withdrawn"),
                        ]
                    ),
                ),
                ("decided_by", models.TextField()),
                ("decided_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                ("second_by", models.TextField(null=True)),
                ("second_at", models.DateTimeField(null=True)),
                ("command_id", models.TextField(null=True, unique=True)),
            ],
            options={
                "verbose_name": "decision",
                "db_table": "review_decision",
            },
        ),
        migrations.AddField(
            model_name="chaincursor",
            name="chain_head",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="chaincursor",
            name="window_blocks",
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name="reviewcase",
            name="version",
            field=models.IntegerField(db_default=1),
        ),
        migrations.AddField(
            model_name="signer",
            name="chain_nonce_final",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="txattempt",
            name="command_id",
            field=models.TextField(null=True, unique=True),
        ),
        migrations.AddField(
            model_name="txattempt",
            name="kind",
            field=models.TextField(
                choices=[("pay", "pay"), ("replace", "replace"), ("cancel", "cancel"), ("fill", "fill")],
                db_default="pay",
            ),
        ),
        migrations.AddConstraint(
            model_name="txattempt",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["pay", "replace", "cancel", "fill"])), name="tx_attempt_kind_known"
            ),
        ),
        migrations.AddIndex(
            model_name="envelopeorphan",
            index=models.Index(fields=["tx_hash"], name="envelope_orphan_tx"),
        ),
        migrations.AddIndex(
            model_name="envelopeorphan",
            index=models.Index(fields=["reorg_id", "position"], name="envelope_orphan_reorg"),
        ),
        migrations.AddConstraint(
            model_name="keptshare",
            constraint=models.UniqueConstraint(fields=("request_id", "share_index"), name="kept_share_once"),
        ),
        migrations.AddIndex(
            model_name="reorgevidence",
            index=models.Index(
                condition=models.Q(("verdict__isnull", True)), fields=["after_block"], name="reorg_evidence_open"
            ),
        ),
        migrations.AddField(
            model_name="reviewdecision",
            name="case",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="requests_app.reviewcase"),
        ),
        migrations.AddConstraint(
            model_name="reviewdecision",
            constraint=models.UniqueConstraint(fields=("case", "seq"), name="review_decision_seq"),
        ),
        migrations.AddConstraint(
            model_name="reviewdecision",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["awaiting_second", "commanded"])),
                fields=("case",),
                name="review_decision_one_open",
            ),
        ),
        migrations.AddConstraint(
            model_name="reviewdecision",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("second_by__isnull", True),
                    models.Q(("second_by", models.F("decided_by")), _negated=True),
                    _connector="OR",
                ),
                name="review_decision_two_persons",
            ),
        ),
        migrations.RunSQL(
            "ALTER TABLE chain_block SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);"
            "ALTER TABLE envelope_orphan ALTER COLUMN payload SET STORAGE EXTERNAL;",
            migrations.RunSQL.noop,
        ),
    ]
