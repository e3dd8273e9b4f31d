"""Numbers from outside, handed to everything that takes numbers.  See capture_programs.py."""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import json
import math
import operator
import pickle
import random
import string
import struct

import numpy as np
from registered_programs import Box, program, x

import tracejit as T


class Int(int):
    def twice(self):
        return self * 2


class Float(float):
    pass


class Tup(tuple):
    pass


NT = collections.namedtuple("NT", "p q")


@dataclasses.dataclass
class DC:
    k: float
    n: int = 1


class Color(enum.IntEnum):
    R = 1
    G = 2
    B = 3


class Own:
    def __init__(self, v):
        self.v = v

    def __radd__(self, o):
        return ("radd", type(o).__name__, o)

    def __rmul__(self, o):
        return ("rmul", type(o).__name__, o)

    def __eq__(self, o):
        return ("eq", type(o).__name__, o)

    def __hash__(self):
        return 1

    def __getitem__(self, k):
        return ("item", type(k).__name__, k)

    def __call__(self, *a, **k):
        return [(type(v).__name__, v) for v in (*a, *k.values())]

    def __contains__(self, k):
        return type(k) is int

    def __format__(self, s):
        return s

    def __setattr__(self, n, v):
        object.__setattr__(self, n, (type(v).__name__, v))


def raised(f, *a):
    try:
        return f(*a)
    except Exception as e:
        return type(e).__name__, str(e)


USES = {
    "int_subclass": lambda k: (Int(k), Int(k).twice(), type(Int(k)).__name__),
    "float_subclass": lambda k: (Float(k), Float(k) + k),
    "tuple_subclass": lambda k: (Tup((k, k)), Tup([k]) + (k,)),
    "named_tuple": lambda k: (NT(k, 1), NT(1, k)._replace(p=k), NT(k, k)._asdict(), NT._make([k, k])),
    "dataclass": lambda k: (DC(k), DC(1.0, n=k), dataclasses.replace(DC(1.0), k=k), dataclasses.asdict(DC(k)), DC(k) == DC(k)),
    "enumeration": lambda k: (Color(k), Color(k).name, Color.R + k, k in (Color.R, Color.G)),
    "array": lambda k: (array.array("d", [k, k]).tolist(), array.array("i", [0] * k).tolist()),
    "bytes": lambda k: (bytes([k]), bytes(k), bytearray(k), bytes([1, 2, 3, 4])[k]),
    "struct": lambda k: struct.pack("<id", k, k),
    "json": lambda k: raised(json.dumps, {"k": k, k: [k]}),
    "pickle": lambda k: pickle.loads(pickle.dumps([k, (k,)])),
    "copy": lambda k: (copy.copy(k), copy.deepcopy([k, {"k": k}])),
    "fraction": lambda k: (fractions.Fraction(k, 7), fractions.Fraction(1, 2) * k),
    "decimal": lambda k: (str(decimal.Decimal(k)),),
    "date": lambda k: (datetime.date(2020, k, 1), datetime.timedelta(seconds=k), datetime.timedelta(days=1) * k),
    "complex": lambda k: (complex(k), complex(k, k), k + 1j, 2j * k),
    "characters": lambda k: (chr(k + 64), "abcdef"[k], "abcdef"[:k], "ab" * k, "x".zfill(k), "x".center(k), "a".rjust(k, ".")),
    "texts": lambda k: (
        f"{k}",
        f"{k:03d}",
        f"{k!r}",
        "%d %s" % (k, k),
        "{0} {0:>4}".format(k),
        str(k),
        repr(k),
        "{:{w}}".format(1, w=k),
        f"{1:{k}}",
    ),
    "template": lambda k: string.Template("$k").substitute(k=k),
    "ranges": lambda k: (list(range(k)), list(range(0, 10, k)), range(k)[-1], k in range(5), range(5).index(k)),
    "lists": lambda k: (
        [0] * k,
        [1, 2, 3, 4][k],
        [1, 2, 3, 4][-k],
        [1, 2, 3, 4][:k],
        [k] in [[k]],
        [5, k, 3].index(k),
        sorted([3, k, 1]),
        [1, 2, 3].pop(k - 1),
    ),
    "keys": lambda k: (
        {k: 1}[k],
        {1: "a", 2: "b", 3: "c"}[k],
        k in {1, 2},
        {k},
        dict.fromkeys([k]),
        {(k, 1): 2}[(k, 1)],
        {1.0: "f", 2.0: "g", 3.0: "h"}[k],
    ),
    "built_in_numbers": lambda k: (
        abs(-k),
        divmod(7, k),
        pow(2, k),
        pow(3, k, 5),
        round(k),
        round(2.345, k),
        hash(k),
        bin(k),
        hex(k),
        oct(k),
        int(k),
        float(k),
        bool(k),
        k.bit_length(),
        k.real,
        k.to_bytes(2, "big"),
        float(k).is_integer(),
        (k / 4).as_integer_ratio(),
    ),
    "math": lambda k: (
        math.gcd(6, k),
        math.comb(5, k),
        math.factorial(k),
        math.isqrt(k),
        math.ldexp(1.0, k),
        math.copysign(1, -k),
        math.isclose(k, 2),
        math.sqrt(k),
        math.floor(k / 2),
        math.prod([k, k]),
        math.fsum([k, 0.1]),
        math.hypot(k, k),
    ),
    "itertools": lambda k: (
        list(itertools.repeat(k, k)),
        list(itertools.islice(itertools.count(k), k)),
        list(itertools.chain([k], (k,))),
        list(itertools.accumulate([k, k])),
        list(enumerate("ab", k)),
        list(itertools.combinations(range(4), k)),
        list(zip([k], [k], strict=True)),
    ),
    "functools": lambda k: (
        functools.reduce(operator.add, [k, k]),
        functools.partial(pow, k)(2),
        list(map(lambda v: v + k, [k])),
        list(filter(lambda v: v == k, [1, 2, 3])),
        max(k, 2),
        min([k, 2]),
        sum([k, 1]),
        any([k == 2]),
        operator.itemgetter(k)([1, 2, 3, 4]),
        operator.methodcaller("__add__", k)(3),
    ),
    "own_objects": lambda k: (
        k + Own(1),
        k * Own(1),
        Own(1)[k],
        Own(1)(k, z=k),
        k in Own(1),
        Own(1)[k:k],
        f"{Own(1):{k}}",
        Own(k).v,
        k == Own(1),
    ),
    "errors": lambda k: (
        raised(lambda: k + "a"),
        raised(lambda: "a" + k),
        raised(lambda: [1][k]),
        raised(lambda: k[0]),
        raised(lambda: k()),
        raised(lambda: len(k)),
        raised(lambda: k.nothing),
        raised(lambda: {}[k]),
        raised(lambda: int("x", k + 10)),
        raised(lambda: k / 0),
        raised(lambda: iter(k)),
        raised(lambda: k @ k),
        raised(lambda: -"a"),
        raised(lambda: k < "a"),
        raised(lambda: [].pop(k)),
        raised(lambda: range(0, 1, k - k)),
        raised(lambda: "".join([k])),
        raised(lambda: None + k),
        raised(lambda: (1, 2) + k),
        raised(lambda: {1} | k),
    ),
    "error_arguments": lambda k: (
        raised(lambda: (_ for _ in ()).throw(ValueError(k, [k]))),
        ValueError(k).args,
        KeyError(k).args,
        str(KeyError(k)),
        repr(OSError(k, "m")),
    ),
    "types": lambda k: (
        type(k),
        isinstance(k, int),
        isinstance(k, (float, bool)),
        issubclass(type(k), int),
        type(k) is int,
        k.__class__.__name__,
        type(k + 0.5).__name__,
        type(k)(3),
        callable(k),
    ),
    "comparisons": lambda k: (
        k == 2,
        k != 2.0,
        k < 3,
        1 < k <= 3,
        k is None,
        k == "2",
        k in [1, 2],
        not k,
        k and 5,
        k or 5,
        k == True,  # noqa: E712
        [k] == [2],
        (k, 1) < (2, 2),
        k == np.int64(2),
    ),
    "bits": lambda k: (k & 1, k | 8, k ^ 3, k << 2, 64 >> k, ~k, -k, +k, k // 2, k % 3, k**2, 2**k, k / 2, -7 // k, -7 % k),
    "numpy": lambda k: (
        np.float32(k),
        np.zeros(k).tolist(),
        np.arange(k).sum().item(),
        np.full(2, k).tolist(),
        np.int64(k) + k,
        k * np.float64(2),
        np.clip(5, 0, k).item(),
    ),
    "random": lambda k: (random.Random(k).random(),),
    "generators": lambda k: ([*(v * k for v in range(k))], sum(k for _ in range(k)), dict((k, v) for v in [k])),
    "structures": lambda k: (
        {"a": [k, (k, {k})], "b": k},
        [[k] * 2],
        (k, [k]),
        {k: {k: k}},
        collections.Counter([k, k]),
        collections.deque([k], maxlen=k),
        collections.OrderedDict(a=k),
    ),
    "unpacking": lambda k: (
        (lambda a, *b, c=k, **d: (a, b, c, d))(k, k, z=k),
        [*range(k)],
        {**{"k": k}},
        (lambda *a: a)(*[k] * k),
    ),
    "conversions": lambda k: (
        int(float(k)),
        float(str(k)),
        int(str(k), 8),
        complex(str(k)),
        bool(k - k),
        tuple(str(k)),
        list(map(str, [k])),
        ascii(k),
        format(k, "b"),
        format(k * 1.0, ".2f"),
    ),
    "statements": lambda k: [v for v in [1, 2, 3] if v > k] + ([k] if (n := k + 1) > 2 else [n]),
    "closures": lambda k: [f() for f in [lambda: k, lambda k=k: k, (lambda j: lambda: j + k)(k)]],
    "tensors": lambda k: (
        T.zeros(k).shape,
        T.full((k,), k),
        T.arange(k),
        T.ones(3)[:k],
        T.ones(4)[k],
        T.tensor([k, k]),
        T.tensor(k).dtype,
        T.ones(2) ** k,
        T.ones(k, k).sum(0),
        T.cat([T.ones(1)] * k),
        T.ones(2, 2).sum(k - k),
        T.linspace(0, 1, k),
        T.eye(k),
    ),
}


def using(use, source):
    def maker():
        box = Box(k=2)

        def by_argument(a, k):
            return a * 2, use(k)

        def by_attribute(a, k):
            return a * 2, use(box.k)

        def by_arithmetic(a, k):
            return a * k, use(box.k * 2 - k)

        fn = {"argument": by_argument, "attribute": by_attribute, "arithmetic": by_arithmetic}[source]

        def go(f, k):
            box.k = k
            return f(x(1), k)

        return fn, [lambda f, k=k: go(f, k) for k in (2, 3, 2, 1)], None

    return maker


def in_place(k):
    found = []
    for change in (
        lambda v: operator.imatmul(v, k),
        lambda v: operator.ilshift(v, 1.5),
        lambda v: operator.ipow(v, "a"),
        lambda v: operator.iadd(v, None),
    ):
        found.append(raised(change, k))

    def shifted(v):
        v <<= 1.5

    def multiplied(v):
        v @= v

    def divided(v):
        v /= 0

    return found, raised(shifted, k), raised(multiplied, k), raised(divided, k)


USES["errors_in_place"] = in_place
REASONS = {
    "int_subclass": "unbuildable",
    "float_subclass": "unbuildable",
    "tuple_subclass": "unbuildable",
    "bytes": "unbuildable",
    "pickle": "unknown_call",
}
for _n, _u in USES.items():
    for _s in ("argument", "attribute", "arithmetic"):
        m = using(_u, _s)
        m.__name__ = f"number_used_by_{_n}_from_an_{_s}".replace("from_an_ar", "from_ar")
        program(reason=REASONS.get(_n))(m)
