"""What is known of a nonce that was spent elsewhere outlives the shift that saw it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0014_review_of_payments")]

    operations = [
        migrations.AddField(model_name="nonceslot", name="missing", field=models.JSONField(null=True)),
    ]
