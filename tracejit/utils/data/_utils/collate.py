"""Collating where PyTorch has it; it is written in tracejit.data.collate."""

from tracejit.data.collate import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]
