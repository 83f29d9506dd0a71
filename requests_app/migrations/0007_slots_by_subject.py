"""Slots are looked up by their request whatever their state; the unique index knows only those that are not dead."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0006_desk")]

    operations = [
        migrations.AddIndex(
            model_name="nonceslot",
            index=models.Index(fields=["kind", "subject_id"], name="nonce_slot_subject"),
        ),
    ]
