"""Compiled regular expressions, of which `re.compile` gives the same object for the same text, and their matches."""

from __future__ import annotations

import re

from tracejit.capture.values.model import ValueModel

__all__ = ["MODELS"]

MODELS = (ValueModel(re.Pattern), ValueModel(re.Match, item_method="group"))
