"""Since which block an offer waits."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0017_review_gaps")]

    operations = [
        migrations.AddField(model_name="txattempt", name="waiting_from_block", field=models.BigIntegerField(null=True)),
    ]
