"""The native face: the row as it is, problem+json errors, long-poll."""
