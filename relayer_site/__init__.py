"""Composition root: settings, URLs, WSGI, health, metrics, look of the console. Nobody imports it."""
