"""Random primitives (being written)."""
