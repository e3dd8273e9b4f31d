"""What a recorded call came to: its guards, its effects, the facts about its tensors, and the entry that stands for later calls."""
