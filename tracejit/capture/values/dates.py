"""Types of `datetime`.  Methods that ask for the time, the time zone of the process or the locale are not pure."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from typing import Any

from tracejit.capture.values.model import ALL_OPERATORS, ValueModel

__all__ = ["MODELS"]

_IMPURE = frozenset({"astimezone", "timestamp", "strftime", "ctime", "today", "now", "fromtimestamp"})
_NUMERIC = re.compile(r"(?:[^%]|%[YmdHMSfjyIGuVw%])*")
"""Formats with directives that neither the locale nor the time zone of the process has a part in."""


def _timedelta(value: datetime.timedelta) -> tuple[object, ...]:
    return value.days, value.seconds, value.microseconds


def _date(value: datetime.date) -> tuple[object, ...]:
    return value.year, value.month, value.day


def _zone(zone: datetime.tzinfo | None) -> tuple[object, ...] | None:
    if zone is None or type(zone) is zoneinfo.ZoneInfo:
        return (zone,)
    return _timezone(zone) if type(zone) is datetime.timezone else None


def _timezone(value: datetime.timezone) -> tuple[object, ...] | None:
    """The offset, and the name if it was given one: the text of one with the usual name tells whether."""
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
    return (*_timedelta(offset), *name) if all(type(part) is str for part in name) else None


def _time(value: Any) -> tuple[object, ...] | None:
    zone = _zone(value.tzinfo)
    return None if zone is None else (value.hour, value.minute, value.second, value.microsecond, value.fold, zone)


def _datetime(value: datetime.datetime) -> tuple[object, ...] | None:
    time = _time(value)
    return None if time is None else (*_date(value), *time)


def _is_numeric(specification: str) -> bool:
    return _NUMERIC.fullmatch(specification) is not None


MODELS = (
    ValueModel(datetime.timedelta, _timedelta, ALL_OPERATORS, is_constructed=True),
    ValueModel(datetime.timezone, _timezone, ALL_OPERATORS, is_constructed=True),
    ValueModel(datetime.date, _date, ALL_OPERATORS, impure_methods=_IMPURE, is_pure_format=_is_numeric, is_constructed=True),
    ValueModel(datetime.time, _time, ALL_OPERATORS, impure_methods=_IMPURE, is_pure_format=_is_numeric, is_constructed=True),
    ValueModel(
        datetime.datetime, _datetime, ALL_OPERATORS, impure_methods=_IMPURE, is_pure_format=_is_numeric, is_constructed=True
    ),
)
