"""A session that missed a new partition of the envelope log is told again."""

from django.db import migrations

from requests_app.sql import ddl


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0022_signer_without_final_count")]

    operations = [migrations.RunSQL(ddl("band_refresh"), ddl("band_refresh_drop"))]
