"""DataLoader where PyTorch has it; it is written in tracejit.data.loader."""

from tracejit.data import DataLoader, default_collate, default_convert, get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

DataLoader.__module__ = __name__  # the module that programs know
