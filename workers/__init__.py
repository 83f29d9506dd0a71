"""The moving parts of the relayer: shifts, listener, chain access, devnet."""
