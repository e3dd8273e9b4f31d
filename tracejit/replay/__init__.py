"""What a call does besides its program, as data: a small typed language, its verifier and its rendering as Python."""
