"""Public functions (random), being written."""
