"""What the desk's door remembers."""

from __future__ import annotations

from django.db import models


class DeskLoginCount(models.Model):
    """Tries to log in that were let through to the password and did not succeed (`requests_app.desk_logins`), of an address, or of a name there."""

    key = models.TextField(primary_key=True)
    opened_at = models.DateTimeField()
    tries = models.IntegerField()

    class Meta:
        db_table = "desk_login_count"
        indexes = [models.Index(fields=["opened_at"], name="desk_login_opened")]

    def __str__(self) -> str:
        return self.key
