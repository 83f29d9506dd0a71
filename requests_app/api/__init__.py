"""The HTTP faces of the relayer: v2 and v3 (the fhEVM contract) and v1 (native), over the same services."""
