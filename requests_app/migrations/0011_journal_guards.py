"""The journal refuses what does not follow the entry before, resolves another payment's hold, or is a leg of nothing; bills are found."""

import re

import django.db.models.deletion
from django.db import migrations, models

from requests_app.sql import ddl

# The functions as they were, replaced in place: their triggers stay.
_FIRST = re.findall(r"CREATE FUNCTION (ledger_.*?END \$\$;)", ddl("payments"), re.DOTALL)
BEFORE = "\n".join(f"CREATE OR REPLACE FUNCTION {body}" for body in _FIRST)


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0010_payment_reviews")]

    operations = [
        migrations.RunSQL(ddl("journal"), BEFORE),
        migrations.AddIndex(
            model_name="usagebilled", index=models.Index(fields=["reference"], name="usage_billed_reference")
        ),
        migrations.AlterField(
            model_name="ledgerentry",
            name="holds",
            field=models.OneToOneField(
                db_column="holds",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="requests_app.ledgerentry",
                to_field="entry_id",
            ),
        ),
    ]
