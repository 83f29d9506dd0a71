from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0002_envelope_log_and_guards")]

    operations = []
