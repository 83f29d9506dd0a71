"""Payment intents, their ledger, idempotency keys, dead letters; jobs are leased fairly by tenant."""

import django.db.models.deletion
from django.db import migrations, models

import requests_app.fields
from requests_app.sql import ddl


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0007_slots_by_subject"),
    ]

    operations = [
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("queue", models.TextField()),
                ("job_key", models.TextField()),
                (
                    "kind",
                    models.SmallIntegerField(
                        choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
                    ),
                ),
                ("subject_id", models.BigIntegerField()),
                ("tenant_id", models.BigIntegerField()),
                ("priority", models.SmallIntegerField()),
                ("attempts", models.IntegerField()),
                ("reason", models.TextField()),
                ("subject_state", models.TextField(null=True)),
                ("cycles", models.IntegerField(db_default=1)),
                (
                    "status",
                    models.TextField(
                        choices=[("parked", "parked"), ("redriven", "redriven"), ("dropped", "dropped")],
                        db_default="parked",
                    ),
                ),
                ("parked_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                ("resolved_by", models.TextField(null=True)),
                ("resolved_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "dead letter",
                "db_table": "dead_letter",
            },
        ),
        migrations.CreateModel(
            name="IdempotencyRecord",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "scope", "key", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("scope", models.BigIntegerField()),
                ("key", models.TextField()),
                ("fingerprint", models.BinaryField()),
                ("attempt", models.IntegerField(db_default=1)),
                ("claimed_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                ("lease_until", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("response_status", models.SmallIntegerField(null=True)),
                ("response_headers", models.JSONField(null=True)),
                ("response_body", models.BinaryField(null=True)),
            ],
            options={
                "db_table": "idempotency_record",
            },
        ),
        migrations.CreateModel(
            name="IntentTransitionRow",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "intent_id", "version", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("intent_id", models.BigIntegerField()),
                ("version", models.IntegerField()),
                ("from_state", models.TextField(null=True)),
                ("to_state", models.TextField()),
                (
                    "actor",
                    models.TextField(
                        choices=[
                            ("api", "api"),
                            ("relayer", "relayer"),
                            ("listener", "listener"),
                            ("operator", "operator"),
                            ("system", "system"),
                        ]
                    ),
                ),
                ("at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                ("tx_hash", models.BinaryField(null=True)),
                ("reason", models.TextField(null=True)),
                ("by_user", models.TextField(null=True)),
                ("epoch", models.BigIntegerField(null=True)),
            ],
            options={
                "verbose_name": "intent transition",
                "db_table": "intent_transition",
            },
        ),
        migrations.CreateModel(
            name="LedgerBalance",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "account", "chain", "token", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("account", models.TextField()),
                ("chain", models.TextField()),
                ("token", models.TextField()),
                ("pending", requests_app.fields.WeiField(db_default=0, decimal_places=0, max_digits=78)),
                ("posted", requests_app.fields.WeiField(db_default=0, decimal_places=0, max_digits=78)),
            ],
            options={
                "verbose_name": "balance",
                "db_table": "ledger_balance",
            },
        ),
        migrations.CreateModel(
            name="LedgerEntry",
            fields=[
                ("seq", models.BigIntegerField(primary_key=True, serialize=False)),
                ("entry_id", models.TextField(unique=True)),
                ("ref", models.BinaryField()),
                ("kind", models.TextField(choices=[("hold", "hold"), ("post", "post"), ("void", "void")])),
                ("chain", models.TextField()),
                ("token", models.TextField()),
                ("by_actor", models.TextField()),
                ("at", models.DateTimeField()),
                ("tx_hash", models.BinaryField(null=True)),
                ("memo", models.TextField(db_default="")),
                ("leg_count", models.SmallIntegerField()),
                ("prev_hash", models.BinaryField()),
                ("hash", models.BinaryField()),
            ],
            options={
                "verbose_name": "ledger entry",
                "verbose_name_plural": "ledger entries",
                "db_table": "ledger_entry",
            },
        ),
        migrations.CreateModel(
            name="LedgerLeg",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "entry_seq", "account", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("entry_seq", models.BigIntegerField()),
                ("ord", models.SmallIntegerField()),
                ("account", models.TextField()),
                ("amount", requests_app.fields.WeiField(decimal_places=0, max_digits=78)),
            ],
            options={
                "verbose_name": "posting",
                "db_table": "ledger_leg",
            },
        ),
        migrations.CreateModel(
            name="PaymentIntent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("public_id", models.TextField(unique=True)),
                ("ref", models.BinaryField(unique=True)),
                ("chain", models.TextField()),
                ("token", models.TextField()),
                ("payer", models.TextField()),
                ("merchant", models.TextField()),
                ("amount", requests_app.fields.WeiField(decimal_places=0, max_digits=78)),
                ("authorization", models.JSONField(null=True)),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("created", "created"),
                            ("authorized", "authorized"),
                            ("settling", "settling"),
                            ("confirming", "confirming"),
                            ("needs_review", "needs review"),
                            ("settled", "settled"),
                            ("failed", "failed"),
                            ("canceled", "canceled"),
                        ],
                        db_default="created",
                    ),
                ),
                ("version", models.IntegerField(db_default=1)),
                ("tx_hash", models.BinaryField(null=True)),
                ("state_reason", models.TextField(null=True)),
                ("created_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                ("updated_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
                ("expires_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "payment intent",
                "db_table": "payment_intent",
            },
        ),
        migrations.CreateModel(
            name="PaymentObservation",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "source_id", "position", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("source_id", models.IntegerField()),
                ("position", models.BigIntegerField()),
                ("ref", models.BinaryField()),
                ("token", models.BinaryField()),
                ("authorizer", models.BinaryField()),
                ("payee", models.BinaryField(null=True)),
                ("amount", requests_app.fields.WeiField(decimal_places=0, max_digits=78, null=True)),
                ("canceled", models.BooleanField(db_default=False)),
                ("tx_hash", models.BinaryField()),
                ("block_hash", models.BinaryField()),
                ("observed_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "verbose_name": "payment observation",
                "db_table": "payment_observation",
            },
        ),
        migrations.CreateModel(
            name="ReconCursor",
            fields=[
                ("source_id", models.IntegerField(primary_key=True, serialize=False)),
                ("block", models.BigIntegerField()),
                ("moved_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "db_table": "recon_cursor",
            },
        ),
        migrations.CreateModel(
            name="ReconFinding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source_id", models.IntegerField()),
                (
                    "kind",
                    models.TextField(
                        choices=[
                            ("unknown_ref", "unknown ref"),
                            ("unreferenced", "unreferenced"),
                            ("paid_twice", "paid twice"),
                            ("unexpected", "unexpected"),
                            ("mismatch", "mismatch"),
                        ]
                    ),
                ),
                ("ref", models.BinaryField()),
                ("position", models.BigIntegerField()),
                ("intent_id", models.BigIntegerField(null=True)),
                ("tx_hash", models.BinaryField()),
                ("detail", models.JSONField(default=dict)),
                ("found_at", models.DateTimeField(db_default=requests_app.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "verbose_name": "reconciliation finding",
                "db_table": "recon_finding",
            },
        ),
        migrations.RemoveIndex(
            model_name="queuejob",
            name="queue_job_claim",
        ),
        migrations.AlterField(
            model_name="figuresupto",
            name="kind",
            field=models.SmallIntegerField(
                choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")],
                primary_key=True,
                serialize=False,
            ),
        ),
        migrations.AlterField(
            model_name="finishedfigure",
            name="kind",
            field=models.SmallIntegerField(
                choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
            ),
        ),
        migrations.AlterField(
            model_name="gatewayref",
            name="kind",
            field=models.SmallIntegerField(
                choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")], null=True
            ),
        ),
        migrations.AlterField(
            model_name="nonceslot",
            name="kind",
            field=models.SmallIntegerField(
                choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
            ),
        ),
        migrations.AlterField(
            model_name="queuejob",
            name="kind",
            field=models.SmallIntegerField(
                choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
            ),
        ),
        migrations.AlterField(
            model_name="requestclient",
            name="kind",
            field=models.SmallIntegerField(
                choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
            ),
        ),
        migrations.AlterField(
            model_name="requestpayload",
            name="kind",
            field=models.SmallIntegerField(
                choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
            ),
        ),
        migrations.AlterField(
            model_name="requesttransition",
            name="kind",
            field=models.SmallIntegerField(
                choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
            ),
        ),
        migrations.AlterField(
            model_name="reviewcase",
            name="kind",
            field=models.SmallIntegerField(
                choices=[(1, "user decrypt"), (2, "public decrypt"), (3, "input proof"), (4, "payment")]
            ),
        ),
        migrations.AddIndex(
            model_name="queuejob",
            index=models.Index(fields=["queue", "priority", "tenant_id", "id"], name="queue_job_claim"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["kind", "subject_id"], name="dead_letter_subject"),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status", "parked")), fields=("job_key",), name="dead_letter_one_parked"
            ),
        ),
        migrations.AddIndex(
            model_name="idempotencyrecord",
            index=models.Index(fields=["expires_at"], name="idempotency_record_expiry"),
        ),
        migrations.AddField(
            model_name="ledgerentry",
            name="holds",
            field=models.ForeignKey(
                db_column="holds",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="requests_app.ledgerentry",
                to_field="entry_id",
                unique=True,
            ),
        ),
        migrations.AddIndex(
            model_name="ledgerleg",
            index=models.Index(fields=["account", "entry_seq"], name="ledger_leg_account"),
        ),
        migrations.AddConstraint(
            model_name="ledgerleg",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount", 0), _negated=True), name="ledger_leg_not_zero"
            ),
        ),
        migrations.AddField(
            model_name="paymentintent",
            name="account",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="requests_app.account"
            ),
        ),
        migrations.AddIndex(
            model_name="paymentobservation",
            index=models.Index(fields=["ref"], name="payment_observation_ref"),
        ),
        migrations.AddIndex(
            model_name="reconfinding",
            index=models.Index(fields=["ref"], name="recon_finding_ref"),
        ),
        migrations.AddConstraint(
            model_name="reconfinding",
            constraint=models.UniqueConstraint(fields=("source_id", "kind", "position"), name="recon_finding_once"),
        ),
        migrations.AddIndex(
            model_name="ledgerentry",
            index=models.Index(fields=["ref"], name="ledger_entry_ref"),
        ),
        migrations.AddConstraint(
            model_name="ledgerentry",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["hold", "post", "void"])), name="ledger_entry_kind_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgerentry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("holds__isnull", True), ("kind", "hold")),
                    models.Q(models.Q(("kind", "hold"), _negated=True), ("holds__isnull", False)),
                    _connector="OR",
                ),
                name="ledger_entry_resolves_a_hold",
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgerentry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "void"), ("leg_count", 0)),
                    models.Q(models.Q(("kind", "void"), _negated=True), ("leg_count__gte", 2)),
                    _connector="OR",
                ),
                name="ledger_entry_legs",
            ),
        ),
        migrations.AddIndex(
            model_name="paymentintent",
            index=models.Index(
                condition=models.Q(("state__in", ["authorized", "confirming", "created", "needs_review", "settling"])),
                fields=["state", "updated_at"],
                name="payment_intent_active",
            ),
        ),
        migrations.AddIndex(
            model_name="paymentintent",
            index=models.Index(fields=["account", "-id"], name="payment_intent_account"),
        ),
        migrations.AddIndex(
            model_name="paymentintent",
            index=models.Index(
                condition=models.Q(("tx_hash__isnull", False)), fields=["tx_hash"], name="payment_intent_tx"
            ),
        ),
        migrations.AddConstraint(
            model_name="paymentintent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "created",
                            "authorized",
                            "settling",
                            "confirming",
                            "needs_review",
                            "settled",
                            "failed",
                            "canceled",
                        ],
                    )
                ),
                name="payment_intent_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="paymentintent",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount__gt", 0)), name="payment_intent_amount_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="paymentintent",
            constraint=models.CheckConstraint(
                condition=models.Q(("version__gte", 1)), name="payment_intent_version_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="paymentintent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("tx_hash__isnull", False),
                    models.Q(("state__in", ["confirming", "settled"]), _negated=True),
                    _connector="OR",
                ),
                name="payment_intent_hash_where_sent",
            ),
        ),
        migrations.AddConstraint(
            model_name="paymentintent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("tx_hash__isnull", True), models.Q(("state", "settling"), _negated=True), _connector="OR"
                ),
                name="payment_intent_no_hash_while_settling",
            ),
        ),
        migrations.AddConstraint(
            model_name="paymentintent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("authorization__isnull", False), ("state__in", ["created", "canceled"]), _connector="OR"
                ),
                name="payment_intent_authorized_has_signature",
            ),
        ),
        migrations.RunSQL(ddl("payments"), ddl("payments_drop")),
    ]
