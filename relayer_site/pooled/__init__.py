"""Database backend of everything else: Django's own, with a look at the sockets of its pool."""
