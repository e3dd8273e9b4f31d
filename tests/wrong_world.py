"""What the wrong programs of test_exceptions.py find around them.  Run anew for each of them."""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import enum
import functools
import heapq
import itertools
import math
import operator
import re
import sys
import traceback
import types

import tracejit as T


class O:
    def __init__(self):
        self.k = 1.0

    def m(self, a):
        return a

    @property
    def bad(self):
        raise KeyError("prop")

    @property
    def ro(self):
        return 1

    __hash__ = None


class NoLen:
    pass


class BadLen:
    def __len__(self):
        return "x"


class NegLen:
    def __len__(self):
        return -1


class BadBool:
    def __bool__(self):
        return 3


class BadIter:
    def __iter__(self):
        return 3


class BadHash:
    def __hash__(self):
        return "s"


class BadStr:
    def __str__(self):
        return 3

    def __repr__(self):
        return 4


class BadFmt:
    def __format__(self, s):
        return 3


class BadIdx:
    def __index__(self):
        return "x"


class BadEnter:
    def __enter__(self):
        raise OSError("enter")

    def __exit__(self, *a):
        pass


class BadExit:
    def __enter__(self):
        return self

    def __exit__(self, *a):
        raise OSError("exit")


class Slots:
    __slots__ = ("a",)


class GA:
    def __getattr__(self, n):
        raise AttributeError("mine " + n)


class GB:
    def __getattr__(self, n):
        return self.__dict__[n]


class Desc:
    def __get__(s, o, t=None):
        raise ValueError("desc")

    def __set__(s, o, v):
        raise ValueError("set")


class WD:
    d = Desc()


class Abs:
    def __add__(self, o):
        return NotImplemented

    __radd__ = __add__

    def __lt__(self, o):
        return NotImplemented

    def __contains__(self, o):
        raise LookupError("contains")


class Call:
    pass


@dataclasses.dataclass(frozen=True)
class FD:
    v: float = 1.0


@dataclasses.dataclass
class DC:
    v: float


class En(enum.Enum):
    A = 1


NT = collections.namedtuple("NT", "a b")
o = O()
d = {"a": 1.0}
l = [1.0, 2.0]
t = (1.0, 2.0)
s = {1, 2}
n = 3
f = 2.5
st = "abc"
none = None
nl = NoLen()
gen_src = [1, 2]
sl = Slots()
ns = types.SimpleNamespace(a=1.0)
fd = FD()
nt = NT(1.0, 2.0)
fn = len
lam = lambda a, b: a
call = Call()
ga = GA()
gb = GB()
wd = WD()
ab = Abs()
part = functools.partial(lambda q: q, 1)
err = ValueError("global")
de = collections.deque([1.0])
od = collections.OrderedDict(a=1)
dd = collections.defaultdict(list)


def kwonly(*, a):
    return a


def posonly(a, /):
    return a


def two(a, b):
    return a


def deep(x):
    return deeper(x)


def deeper(x):
    raise RuntimeError("deep")


def chain(x):
    try:
        deeper(x)
    except RuntimeError as e:
        raise ValueError("chained") from e


def chain2(x):
    try:
        deeper(x)
    except RuntimeError:
        raise ValueError("context")


def genf(x):
    yield x
    raise OSError("in gen")


def rec(x):
    return rec(x)
