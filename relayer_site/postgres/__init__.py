"""Database backend of the embedded server: Django's own, which makes sure that the server runs before it connects."""
