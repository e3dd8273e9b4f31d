"""Values that nothing can change, by their models: guards tell every value from others, and let equal new objects pass."""

import copy
import datetime
import decimal
import itertools
import re
import warnings
import zoneinfo
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

import tracejit
from tracejit import tensor
from tracejit.capture.values import MODELS

UTC, DAY = datetime.UTC, datetime.timedelta(1)
ORDER = "v == other", "v != other", "v < other", "v >= other", "max(v, other)", "sorted([v, other, v])"
SUMS = "v + other", "v - other", "-v", "abs(v)", "sum([v, other], v)", "list(itertools.accumulate([v, other]))"
EVERY = (
    "v", "str(v)", "repr(v)", "f'{v}'", "'%s' % v", "'{} {}'.format(v, [v])", "1 if v else 2", "not v", "hash(v)", "[v, (v,)]",
    "{v: 1}[v]", "v in [other]", "v == 'a'", "copy.deepcopy([v, v])", "copy.copy(v)", "v is other", "type(v).__name__",
    "isinstance(v, int)", "{v, other} == {v}", "[v, other].count(v)",
)  # fmt: skip
KINDS: dict[type, tuple[str, tuple[str, ...]]] = {
    Decimal: (
        "Decimal('0.5') Decimal('0.50') Decimal('0') Decimal('-0') Decimal('-2.345') Decimal('1E+50') Decimal('inf') Decimal('NaN')",
        (
            *ORDER,
            *SUMS,
            "v * 3",
            "v / 3",
            "v ** 2",
            "float(v)",
            "int(v)",
            "round(v, 1)",
            "f'{v:.2f}'",
            "divmod(v, 2)",
            "v.as_tuple()",
            "v.sqrt()",
            "v.quantize(Decimal('0.1'))",
            "Decimal(v)",
            "v.is_signed()",
            "float(v) * x",
            "v * x",
            "v == 0.5",
            "v + 1.0",
        ),
    ),
    datetime.timedelta: (
        "timedelta(1) timedelta(hours=24,microseconds=1) timedelta() timedelta(-1) timedelta.max",
        (*ORDER, *SUMS, "v * 2", "v / other", "v // 2", "v.days", "v.total_seconds()", "timedelta(days=2) - v", "v.days * x"),
    ),
    datetime.timezone: (
        "timezone.utc timezone(timedelta()) timezone(DAY/4) timezone(DAY/4,'A') timezone(DAY/4,'UTC+06:00')",
        ("v == other", "v.utcoffset(None)", "v.tzname(None)", "datetime.datetime(2020, 1, 1, tzinfo=v)"),
    ),
    datetime.date: (
        "date(2020,1,1) date(2021,1,1) date(2020,1,2)",
        (
            *ORDER,
            "v + DAY",
            "v - other",
            "v.year",
            "v.weekday()",
            "v.isoformat()",
            "v.replace(day=5)",
            "f'{v:%Y-%m-%d}'",
            "v.day * x",
        ),
    ),
    datetime.time: (
        "time(1) time(1,fold=1) time(1,2) time(1,tzinfo=UTC) time(0)",
        ("v == other", "v.hour", "v.fold", "v.tzinfo", "v.isoformat()", "v.replace(minute=3)", "f'{v:%H:%M}'", "v.hour * x"),
    ),
    datetime.datetime: (
        "datetime.datetime(2020,1,1) datetime.datetime(2020,1,1,fold=1) datetime.datetime(2020,1,1,tzinfo=UTC) "
        "datetime.datetime(2020,1,1,tzinfo=ZONE) datetime.datetime(2020,1,1,0,0,1)",
        (
            "v == other",
            "v + DAY",
            "v.fold",
            "v.tzinfo",
            "v.date()",
            "v.timetz()",
            "v.isoformat()",
            "f'{v:%Y %H}'",
            "v.utcoffset()",
            "v.replace(fold=0)",
            "v.year * x",
        ),
    ),
    range: (
        "range(3) range(0,3) range(0,4,2) range(0,3,2) range(0) range(1,1) range(0,True) range(-2)",
        ("v == other", "list(v)", "len(v)", "v.stop", "v[0]", "v[1:]", "2 in v", "v.count(1)", "sum(v) * x", "list(reversed(v))"),
    ),
    re.Pattern: (
        "re.compile('a') re.compile('a',re.I) re.compile('b')",
        ("v.pattern", "v.sub('c', 'Aab')", "v.match('A') is None"),
    ),
    zoneinfo.ZoneInfo: (
        "ZoneInfo('UTC') ZoneInfo('Europe/Berlin') ZoneInfo.no_cache('UTC')",
        ("v.key", "v.utcoffset(datetime.datetime(2020, 7, 1))", "v.tzname(datetime.datetime(2020, 7, 1))", "v == other"),
    ),
    re.Match: ("re.match('a.',W) re.match('a',W) re.search('c',W)", ("v.group()", "v[0]", "v.span()", "v.string")),
}
NAMES: dict[str, Any] = {
    "Decimal": Decimal, "datetime": datetime, "timedelta": datetime.timedelta, "timezone": datetime.timezone, "date": datetime.date,
    "time": datetime.time, "re": re, "copy": copy, "itertools": itertools, "UTC": UTC, "DAY": DAY, "W": "abc",
    "ZoneInfo": zoneinfo.ZoneInfo, "ZONE": zoneinfo.ZoneInfo("UTC"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_context() -> Iterator[None]:
    with (
        decimal.localcontext(decimal.Context(prec=9)),
        warnings.catch_warnings(),
        tracejit.config.override(backend="interpret"),
    ):
        warnings.simplefilter("ignore")  # values that differ in each call are recorded again and again
        yield


def evaluated(text: str) -> Any:
    return eval(text, NAMES)


def samples(kind: type) -> list[str]:
    return KINDS[kind][0].split()


def function(expression: str, value: str = "holder", before: str = "") -> Callable[..., Any]:
    source = f"def f(x, holder, other):\n    v = {value}\n    return x + 1, {expression}\n"
    names = dict(NAMES, before=evaluated(before) if before else None)
    exec(source, names)
    return tracejit.compile(names["f"], source=source)  # type: ignore[no-any-return]


def outcome(fn: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return repr(fn(*arguments))
    except Exception as error:
        return type(error), str(error)


def test_every_model_has_samples_here() -> None:
    assert MODELS.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_a_program_can_tell_apart_have_other_keys(kind: type) -> None:
    key = MODELS[kind].key or (lambda value: None)
    for one, other in itertools.product(samples(kind), repeat=2):
        keys = key(evaluated(one)), key(evaluated(other))
        told = repr(evaluated(one)) != repr(evaluated(other))
        assert None in keys or told == (keys[0] != keys[1]), (one, other)
        assert all(type(part) in (int, str, type(None), zoneinfo.ZoneInfo, tuple) for part in keys[0] or ())


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value


PLACES: dict[str, Callable[[Any], Any]] = {"holder": lambda v: v, "holder.value": Box, "holder['v']": lambda v: {"v": v}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_compiled_calls_give_what_eager_ones_give_for_each_value(kind: type, place: str) -> None:
    texts, x, hold = samples(kind), tensor([1.0, 2.0]), PLACES[place]
    for expression in (*EVERY, *KINDS[kind][1]) if place == "holder" else ("v", "f'{v}'", *KINDS[kind][1][:3]):
        compiled = function(expression, place)
        for value, other in (*zip(texts, texts[1:] + texts[:1], strict=True), *[(texts[0], texts[0])] * 2, (texts[0], texts[1])):
            arguments = x, hold(evaluated(value)), evaluated(other)
            expected = outcome(compiled.__wrapped__, *arguments)  # type: ignore[attr-defined]
            assert outcome(compiled, *arguments) == expected, (expression, value, other)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if MODELS[kind].key is not None])
def test_another_object_of_the_same_value_finds_the_recording(kind: type) -> None:
    text = samples(kind)[0]
    for expression in EVERY[:10]:
        compiled = function(expression)
        for _ in range(4):
            compiled(tensor([1.0]), evaluated(text), evaluated(samples(kind)[1]))
        assert compiled.stats.compiled_calls >= 2, (expression, compiled.explain())  # type: ignore[attr-defined]


@pytest.mark.parametrize("expression", [
    "v / 3", "v + other", "sum([v, other])", "round(v, 2)", "abs(v)", "-v", "f'{v:.3f}'", "'%s' % [v]", "v.sqrt()",
    "list(itertools.accumulate([v, v]))", "[v].count(0.5)", "v == 0.5", "Decimal('abc')", "v // 0", "str(Decimal('1E+50'))", "{v: [v]}",
])  # fmt: skip
def test_the_context_of_decimals_is_guarded_and_its_flags_are_set(expression: str) -> None:
    compiled, x = function(expression), tensor([1.0])
    settings: list[dict[str, Any]] = [{}, {}, {}, {"prec": 3}, {"prec": 3}, {"rounding": decimal.ROUND_UP}, {"capitals": 0}, {}]
    for setting in [*settings, {"traps": [decimal.InvalidOperation]}, {"traps": []}, {"traps": [decimal.Inexact]}, {}]:
        arguments = x, Decimal("2.34567891"), Decimal("0.00000000000001")
        with decimal.localcontext(decimal.Context(**setting)) as context:
            expected = outcome(compiled.__wrapped__, *arguments), str(context)  # type: ignore[attr-defined]
        with decimal.localcontext(decimal.Context(**setting)) as context:
            assert (outcome(compiled, *arguments), str(context)) == expected, setting


def test_recordings_that_repeat_name_the_value() -> None:
    compiled = function("v.year")
    for day in range(1, 22):
        compiled(tensor([1.0]), datetime.date(2020, 1, day), None)
    assert "holder took 16 values (datetime.date(2020, 1, 1)," in " ".join(compiled.explain().split())  # type: ignore[attr-defined]


def test_a_number_that_a_value_is_made_of_is_guarded() -> None:
    compiled, x = function("date(2023, 2, v).weekday() * x"), tensor([1.0])
    for day in (1, 2, 1, 30, 2, 30, 1):
        assert outcome(compiled, x, day, None) == outcome(compiled.__wrapped__, x, day, None)  # type: ignore[attr-defined]
    assert compiled.stats.compiled_calls >= 2  # type: ignore[attr-defined]


class Money(Decimal):
    def __add__(self, other: Any) -> Any:
        return "money", Decimal(self) + other


def test_a_class_that_derives_from_one_is_another_kind() -> None:
    compiled, x = function("v + 1"), tensor([1.0])
    for value in (Decimal(2), Money(2), Decimal(2), Money(2), Money(3)):
        expected = outcome(compiled.__wrapped__, x, value, None)  # type: ignore[attr-defined]
        assert outcome(compiled, x, value, None) == expected


class Weight(Decimal):
    """Has all its methods from C code."""


@pytest.mark.parametrize("expression", ["-v", "+v", "abs(v)", "v + 1", "str(v)", "round(v, 2)", "sum([v, v])"])
def test_the_context_counts_for_classes_that_derive_from_decimals(expression: str) -> None:
    compiled, x, weight = function(expression), tensor([1.0]), Weight("2.34567891")
    for precision in (9, 9, 9, 3, 3, 9):
        decimal.getcontext().prec = precision
        expected = outcome(compiled.__wrapped__, x, weight, None)  # type: ignore[attr-defined]
        assert outcome(compiled, x, weight, None) == expected, precision


def test_which_object_a_value_is_counts_where_the_program_asks() -> None:
    for expression in ("v is other", "id(v) == id(other)", "len({id(v), id(other)})"):
        compiled, x, a, b = function(expression), tensor([1.0]), datetime.timedelta(1), datetime.timedelta(1)
        for pair in ((a, a), (a, b), (b, b), (b, a), (a, a)):
            assert outcome(compiled, x, *pair) == outcome(compiled.__wrapped__, x, *pair)  # type: ignore[attr-defined]


def test_the_locale_and_the_zone_of_the_process_are_not_guarded() -> None:
    for expression in (
        "f'{v:%B}'",
        "'{:%c}'.format(v)",
        "f'{v:{other}}'",
        "format(v, other)",
        "v.__format__(other)",
    ):
        compiled = function(expression)
        for _ in range(3):
            compiled(tensor([1.0]), datetime.date(2020, 1, 1), "%x")
        assert {r.code for r in compiled.reasons} == {"impure_call"}, expression  # type: ignore[attr-defined]


KEYS = [
    "{D('1.0'): 1, D('2'): 2}", "{D('1.00'): 1, D('2'): 2}", "{D('1.0'): 5}", "{1: 1, 2: 2}", "{(D('1.0'), 'a'): 1}",
    "{(D('1.00'), 'a'): 1}", "{date(2020, 1, 1): 1}", "{date(2020, 1, 2): 1}", "{(1,): 1, D(1): 2}",
    "{(1.0,): 1, D(1): 2}", "{(1, 'a'): 1}", "{(1.0, 'a'): 1}", "{(True, 'a'): 1}", "{range(2): 1, D('NaN'): 1}",
    "{Box: 1, D(1): 3}",
]  # fmt: skip


@pytest.mark.parametrize("expression", [
    "list(v)", "v[other]", "other in v", "v.get(other, 7) * x", "[str(k) for k in v]", "str(v)",
    "{k: n + 1 for k, n in v.items()}", "len(v) * x",
])  # fmt: skip
def test_values_are_keys_of_dictionaries_from_outside(expression: str) -> None:
    compiled, x = function(expression), tensor([1.0])
    names = dict(NAMES, D=Decimal, Box=Box)
    for text in [*KEYS, *KEYS, KEYS[0], KEYS[0], KEYS[4], KEYS[4]]:
        for other in (Decimal("1.0"), datetime.date(2020, 1, 1), (1, "a"), (Decimal("1.00"), "a")):
            table = eval(text, names)
            expected = outcome(compiled.__wrapped__, x, table, other)  # type: ignore[attr-defined]
            assert outcome(compiled, x, table, other) == expected, (text, other)


def test_a_dictionary_with_dates_as_keys_is_compiled() -> None:
    compiled, x = function("v[other] * x"), tensor([1.0])
    for _ in range(5):
        compiled(x, {datetime.date(2020, 1, 1): 2.0, datetime.date(2020, 1, 2): 3.0}, datetime.date(2020, 1, 2))
    assert compiled.stats.compiled_calls == 4  # type: ignore[attr-defined]
