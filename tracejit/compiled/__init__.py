"""Compiled functions: programs of a recording, its entry and backward calls, the paths of a function and the choice between them."""
