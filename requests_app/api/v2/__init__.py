"""The fhEVM wire contract: /v2 and /v3 routes."""
