"""Typed functions over the named statements. The only package that opens cursors."""
