"""The partitioned envelope log, and the rules that the database itself holds."""

from django.db import migrations

from requests_app.sql import ddl


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0001_initial")]

    operations = [
        migrations.RunSQL(ddl("envelopes"), ddl("envelopes_drop")),
        migrations.RunSQL(ddl("guards"), ddl("guards_drop")),
    ]
