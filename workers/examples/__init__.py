"""Scripted runs of the production code that print what happens."""
