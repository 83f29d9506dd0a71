"""Why a payment stops has words of its own; ended payments are found by the time of their end."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0009_envelope_bands_and_bills"),
    ]

    operations = [
        migrations.AlterField(
            model_name="reviewcase",
            name="reason_code",
            field=models.TextField(
                choices=[
                    ("outcome_unknown", "outcome unknown"),
                    ("foreign_nonce", "foreign nonce"),
                    ("fee_ceiling", "fee ceiling"),
                    ("signer_blocked", "signer blocked"),
                    ("receipt_vanished", "receipt vanished"),
                    ("refused_after_signing", "refused after signing"),
                    ("envelope_conflict", "envelope conflict"),
                    ("authorization_window_closed", "authorization window closed"),
                    ("amount_mismatch", "amount mismatch"),
                    ("wrong_party", "wrong party"),
                    ("reverted_final", "reverted final"),
                    ("paid_twice", "paid twice"),
                    ("unexpected_payment", "unexpected payment"),
                ]
            ),
        ),
        migrations.AddIndex(
            model_name="paymentintent",
            index=models.Index(
                condition=models.Q(("state__in", ["canceled", "failed", "settled"])),
                fields=["updated_at"],
                name="payment_intent_ended",
            ),
        ),
    ]
