"""Models are called what the desk's sidebar calls them. Nothing changes in the database."""

from django.db import migrations

NAMES = {
    "account": "account",
    "envelopeconflict": "conflict",
    "envelopesource": "source",
    "intenttransitionrow": "payment transition",
    "paymentintent": "payment",
}


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0020_desk_logins")]

    operations = [
        migrations.AlterModelOptions(name=model, options={"verbose_name": name}) for model, name in NAMES.items()
    ]
