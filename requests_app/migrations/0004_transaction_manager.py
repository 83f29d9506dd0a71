from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0003_runtime_settings")]

    operations = []
