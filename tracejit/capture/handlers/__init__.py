"""What the steps of instrumented code do: as Python does them, and so that each later call can do them again."""
