"""The language that loop nests are written in, what it means, a verifier, rewrites, and its rendering as Python.  It knows no graph."""
