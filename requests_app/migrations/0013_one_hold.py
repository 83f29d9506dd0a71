"""A payment is held once, whatever the entry is called."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0012_scale_indexes")]

    operations = [
        migrations.AddConstraint(
            model_name="ledgerentry",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "hold")), fields=("ref",), name="ledger_entry_one_hold"
            ),
        ),
    ]
