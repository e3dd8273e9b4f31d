"""`zoneinfo.ZoneInfo`, of which there is one object for each key."""

from __future__ import annotations

import zoneinfo

from tracejit.capture.values.model import ValueModel

__all__ = ["MODELS"]

MODELS = (ValueModel(zoneinfo.ZoneInfo, operators=frozenset({"==", "!="})),)
