from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0004_transaction_manager")]

    operations = []
