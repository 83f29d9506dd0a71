"""Cases about sources: one for each that is halted."""

from django.db import migrations, models

OPEN = """
INSERT INTO review_case (kind, subject_id, reason_code, evidence)
SELECT 101, s.source_id, CASE WHEN s.halted LIKE 'reorganisation deeper%' THEN 'deep_reorg' ELSE 'envelope_conflict' END,
       jsonb_build_object('source', s.source_id, 'block',
         (SELECT min(c.position) >> 20 FROM envelope_conflict c WHERE c.source_id = s.source_id AND c.position >> 20 > k.block))
  FROM envelope_source s LEFT JOIN chain_cursor k ON k.source_id = s.source_id WHERE s.halted IS NOT NULL
ON CONFLICT (kind, subject_id) WHERE status = 'open' DO NOTHING
"""

REASONS = [
    "outcome_unknown",
    "foreign_nonce",
    "fee_ceiling",
    "signer_blocked",
    "receipt_vanished",
    "refused_after_signing",
    "envelope_conflict",
    "deep_reorg",
    "authorization_window_closed",
    "amount_mismatch",
    "wrong_party",
    "reverted_final",
    "paid_twice",
    "unexpected_payment",
]


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0018_waiting_offers")]

    operations = [
        migrations.AlterField(
            model_name="reviewcase",
            name="kind",
            field=models.SmallIntegerField(
                choices=[
                    (1, "user decrypt"),
                    (2, "public decrypt"),
                    (3, "input proof"),
                    (4, "payment"),
                    (101, "source"),
                ]
            ),
        ),
        migrations.AlterField(
            model_name="reviewcase",
            name="reason_code",
            field=models.TextField(choices=[(code, code.replace("_", " ")) for code in REASONS]),
        ),
        migrations.RunSQL(OPEN, "DELETE FROM review_case WHERE kind = 101"),
    ]
