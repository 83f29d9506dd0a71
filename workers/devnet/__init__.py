"""Local stand-in for the two chains, the KMS nodes and the coprocessors."""
