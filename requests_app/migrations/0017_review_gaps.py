"""What a conflict names, since when a signer's count stands still, and who took a proposal back."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0016_webhooks")]

    operations = [
        migrations.AddField(model_name="envelopeconflict", name="have_ref", field=models.BinaryField(null=True)),
        migrations.AddField(model_name="envelopeconflict", name="have_tx_hash", field=models.BinaryField(null=True)),
        migrations.AddField(model_name="envelopeconflict", name="got_ref", field=models.BinaryField(null=True)),
        migrations.AddField(model_name="envelopeconflict", name="got_tx_hash", field=models.BinaryField(null=True)),
        migrations.AddField(model_name="envelopeconflict", name="reviewed_at", field=models.DateTimeField(null=True)),
        migrations.AddField(model_name="signer", name="nonce_moved_at", field=models.DateTimeField(null=True)),
        migrations.AddField(model_name="reviewdecision", name="withdrawn_by", field=models.TextField(null=True)),
        migrations.AddField(model_name="reviewdecision", name="withdrawn_at", field=models.DateTimeField(null=True)),
        migrations.AddField(model_name="reviewdecision", name="withdrawn_reason", field=models.TextField(null=True)),
    ]
