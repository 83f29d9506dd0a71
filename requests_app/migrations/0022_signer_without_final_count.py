"""A column that nothing but the seed ever wrote and nothing read: the finalized count is asked of the chain whenever it is needed."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0021_product_terms")]

    operations = [migrations.RemoveField(model_name="signer", name="chain_nonce_final")]
