"""From source text to instrumented code: where a function's text is found, and how each step of it becomes a call of a handler."""
