"""Exceptions: the program's own, as eager raises them.

Each entry of the tables is wrong in its own way.  Type, text, arguments, notes, the chain of causes and contexts, and the
program's lines in the traceback are the same whether the call is eager, recorded or made again, and no frame of the compiler stands
between them, nor between the first of them and the caller's.
"""

from __future__ import annotations

import functools
import linecache
import math
import operator
import re
import runpy
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrong_programs import CALLBACKS, CALLS, CAUGHT, NESTED

import tracejit as T
from tracejit.capture.tracebacks import COMPILER
from tracejit.config import override

WORLD = Path(__file__).with_name("wrong_world.py")
EXPRESSIONS = (
    "o.missing",
    "o[0]",
    "o()",
    "len(o)",
    "iter(o)",
    "o+1",
    "1+o",
    "o<1",
    "-o",
    "o in o",
    "hash(o)",
    "o.bad",
    "setattr(o,'ro',1)",
    "delattr(o,'zz')",
    "n.foo",
    "n[0]",
    "n()",
    "len(n)",
    "iter(n)",
    "n+'a'",
    "'a'+n",
    "n+none",
    "n/0",
    "n//0",
    "n%0",
    "f/0",
    "f//0",
    "n<<-1",
    "n@2",
    "n<'a'",
    "n in n",
    "[*n]",
    "{**n}",
    "f'{n:zz}'",
    "f'{f:d}'",
    "'%d'%st",
    "'%s %s'%n",
    "n.real.foo",
    "int(st)",
    "float(st)",
    "int(none)",
    "[1][n]",
    "(1,)[n]",
    "l[5]",
    "l['a']",
    "l[n]",
    "t[5]",
    "t['a']",
    "d['zz']",
    "d[n]",
    "d[l]",
    "s[0]",
    "st[9]",
    "st['a']",
    "st+1",
    "1+st",
    "st*'a'",
    "none.foo",
    "none[0]",
    "none()",
    "none+1",
    "len(none)",
    "sum(n)",
    "sum(['a'],'')",
    "sum([1],st)",
    "max([])",
    "max(n)",
    "min()",
    "max(1,'a')",
    "sorted(n)",
    "sorted([1,'a'])",
    "abs(st)",
    "round(st)",
    "divmod(n,0)",
    "pow(0,-n)",
    "math.sqrt(-f)",
    "math.sqrt(st)",
    "math.log(0)",
    "math.log(f-2.5)",
    "chr(-n)",
    "ord('ab')",
    "int('z',n)",
    "getattr(o,1)",
    "getattr(o,'zz')",
    "hasattr(o,1)",
    "isinstance(1,2)",
    "issubclass(1,int)",
    "callable()",
    "next(l)",
    "next(iter([]))",
    "two(1)",
    "two(1,2,3)",
    "two(a=1,c=2)",
    "kwonly(1)",
    "posonly(a=1)",
    "lam(1)",
    "o.m()",
    "O(1)",
    "NoLen(1)",
    "DC()",
    "FD(1,2)",
    "setattr(fd,'v',2.0)",
    "nt.c",
    "nt._replace(c=1)",
    "NT(1)",
    "En(5)",
    "En['B']",
    "En.B",
    "BadLen().__len__()+1",
    "len(BadLen())",
    "len(NegLen())",
    "bool(BadBool())",
    "bool(NegLen())",
    "[q for q in BadIter()]",
    "hash(BadHash())",
    "{BadHash():1}",
    "str(BadStr())",
    "repr(BadStr())",
    "f'{BadStr()}'",
    "f'{BadFmt()}'",
    "l[BadIdx()]",
    "sl.a",
    "setattr(sl,'b',1)",
    "ns.b",
    "ga.q",
    "gb.q",
    "wd.d",
    "setattr(wd,'d',1)",
    "ab+1",
    "ab<1",
    "1 in ab",
    "call()",
    "part()",
    "part(2)",
    "deep(x)",
    "chain(x)",
    "chain2(x)",
    "list(genf(x))",
    "rec(x)",
    "(lambda: deeper(x))()",
    "[deeper(q) for q in l]",
    "{deeper(q) for q in l}",
    "list(map(deeper,l))",
    "sorted(l,key=deeper)",
    "functools.reduce(two,[])",
    "operator.add(1,'a')",
    "de[9]",
    "de['a']",
    "od['q']",
    "dd['z'].foo",
    "x.foo",
    "x[9]",
    "x['a']",
    "x@x",
    "x+T.ones(3)",
    "x+st",
    "x.view(7)",
    "x.sum(5)",
    "x.missing()",
    "T.cat([])",
    "T.ones(2)[T.tensor([5])]",
    "x.item()",
    "bool(x)",
    "int(x)",
    "len(T.tensor(1.0))",
    "T.foo",
    "math.foo",
    "x.reshape(-1,-1)",
    "T.zeros(-1)",
    "T.ones(2,3)@T.ones(2,3)",
    "T.nn.functional.cross_entropy(T.ones(2,3),T.tensor([5,1]))",
    "T.nn.Linear(2,3)(T.ones(5,7))",
    "x.backward()",
    "x.requires_grad_().backward()",
    "T.tensor('a')",
    "T.tensor([[1],[1,2]])",
    "x.squeeze(9)",
    "x.permute(0,0)",
    "T.stack([x,T.ones(3)])",
    "x*none",
    "x**st",
    "x.int().requires_grad_()",
    "T.arange(0,5,0)",
    "x.gather(0,T.tensor([9]))",
    "x[0,0,0]",
    "x[1.5]",
    "x.expand(3)",
    "super().foo",
    "undefined_name",
    "eval('1')",
    "print(x, file=3)",
    "open('/nonexistent/zz')",
    "(yield_ for yield_ in l).throw(KeyError)",
    "1 .foo",
    "type(o).zz",
    "O.zz",
    "d.foo",
    "l.append()",
    "l.append(1,2)",
    "l.pop(99)",
    "[].pop()",
    "l.index(99)",
    "l.remove(99)",
    "d.pop('zz')",
    "{}.popitem()",
    "s.remove(99)",
    "st.foo()",
    "st.index('z')",
    "st.split('')",
    "st.format(1,2)",
    "'{}{}'.format(1)",
    "'{a}'.format(b=1)",
    "st.join([1])",
    "st.encode('zz')",
    "b'a'.decode('zz')",
    "int.from_bytes('a')",
    "range(n,0,0)",
    "range(f)",
    "slice()",
    "list(n)",
    "tuple(n)",
    "dict(n)",
    "dict([1])",
    "set(n)",
    "set([[]])",
    "frozenset([[]])",
    "zip(n)",
    "list(zip([1],[1,2],strict=True))",
    "enumerate(n)",
    "map(n)",
    "filter()",
    "reversed(n)",
    "bytes(-1)",
    "complex(st)",
    "super(O,n)",
    "err.foo",
    "fn()",
    "fn(1,2)",
)
STATEMENTS = (
    "raise err",
    "raise ValueError",
    "raise ValueError('x', 1)",
    "raise KeyError('k') from err",
    "raise n",
    "raise none",
    "raise O",
    "assert x.sum() < 0",
    "assert n == 4, 'msg'",
    "assert n > 4, f'{n}'",
    "a, b = n",
    "a, b = l, 1, 2",
    "a, b, c = t",
    "a, *b, c = [1]",
    "(a, b), c = l",
    "del undefined_q",
    "del o.zz",
    "del d['zz']",
    "del l[9]",
    "del x.foo",
    "o.ro = 1",
    "o[0] = 1",
    "x[9] = 1.0",
    "x['a'] = 1",
    "t[0] = 1",
    "st[0] = 'a'",
    "sl.zz = 1",
    "n.foo = 1",
    "l['a'] = 1",
    "d[l] = 1",
    "o.k.foo = 1",
    "for q in n: pass",
    "for q in BadIter(): pass",
    "with n: pass",
    "with o: pass",
    "with BadEnter(): pass",
    "with BadExit(): x = x * 2",
    "with BadExit(): raise KeyError('in')",
    "import nonexistent_zz",
    "from math import zzz",
    "n += 'a'",
    "l += n",
    "x += T.ones(5)",
    "o.k += 'a'",
    "d['a'] += 'b'",
    "d['q'] += 1",
    "global gq; gq += 1",
    "while n: n()",
    "try: deeper(x)\nexcept KeyError: pass",
    "try: deeper(x)\nfinally: x = x * 2",
    "try: deeper(x)\nexcept RuntimeError as e: raise",
    "try: deeper(x)\nexcept RuntimeError as e: raise e",
    "try: deeper(x)\nexcept RuntimeError as e: raise e from None",
    "try:\n    try: deeper(x)\n    finally: none.foo\nexcept ZeroDivisionError: pass",
    "match n:\n    case 4: pass\nraise LookupError('m')",
    "def inner():\n    return zq\ninner()",
    "class Q: z = undefined_r",
    "lambda_ = (lambda: zz); lambda_()",
    "raise ExceptionGroup('g', [ValueError(1), KeyError(2)])",
    "e = ValueError('n'); e.add_note('note'); raise e",
    "assert False",
    "x.backward(5)",
    "T.autograd.grad(x, x)",
)


PROGRAMS = [*(f"z = {e}" for e in (*EXPRESSIONS, *CALLS, *CALLBACKS)), *STATEMENTS, *NESTED, *CAUGHT]


def program(name, statements):
    """`prog(x, n, f, st, none)` in a world of its own."""
    lines = ["def prog(x, n=3, f=2.5, st='abc', none=None):", "y = x * 2", *statements.splitlines(), "return y"]
    text = "\n    ".join(lines) + "\n"
    filename = f"<wrong {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    world = runpy.run_path(str(WORLD))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(compile(text, filename, "exec"), world)
    return world["prog"]


def text(value):
    return re.sub(r"0x[0-9a-f]+", "0x", str(value))


def described(error):
    """What a user sees of an error: RecursionErrors but for where they happened to come."""
    if error is None:
        return None
    if isinstance(error, RecursionError):
        return "RecursionError"
    frames = [(frame.f_code.co_filename, frame.f_code.co_name, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    assert not [code_of for code_of in frames if code_of[0].startswith(COMPILER)]
    own = [code_of for code_of in frames if code_of[0].startswith("<wrong") or code_of[0] in (str(WORLD), __file__)]
    notes, chain = (
        getattr(error, "__notes__", None),
        (error.__suppress_context__, described(error.__cause__), described(error.__context__)),
    )
    return type(error).__name__, text(error), text(error.args), own, notes, chain


def outcome(call):
    try:
        return "returned", repr(call(T.tensor([1.0, 2.0])))
    except Exception as error:
        return "raised", described(error)


def state(function):
    world = function.__globals__
    return [repr(world[name]) for name in ("l", "d", "t", "s", "de", "od", "dd", "ns")] + [vars(world["o"])]


@pytest.mark.parametrize("hot_calls", [0, 1])
@pytest.mark.parametrize("statements", PROGRAMS)
def test_an_error_is_the_eager_one(statements, hot_calls):
    eager, function = (program(statements.splitlines()[0][:30], statements) for _ in range(2))
    with override(hot_calls=hot_calls):
        compiled = T.compile(function)
        for _ in range(3):
            expected = outcome(eager)
            assert outcome(compiled) == expected
            assert state(function) == state(eager)


def of_c_code(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return repr(function(*arguments))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "function",
    [np.sin, np.add, np.matmul, np.clip, np.sum, np.linalg.inv, np.fft.fft, np.where, np.zeros, np.frompyfunc(abs, 1, 1),
     functools.partial(np.sin), operator.add, operator.neg, operator.getitem, math.sin, len, sum, isinstance, getattr, int, sorted],
    ids=repr,
)  # fmt: skip
def test_functions_of_c_code_raise_what_they_raise_in_eager_mode_however_they_are_called(function: Callable[..., Any]) -> None:
    for arguments in ((), (1,), ("x",), (1, 2, 3, 4, 5), (T.ones(2),), (np.ones(2), 1), (None, None)):
        compiled = T.compile(function)
        wanted = [of_c_code(function, arguments) for _ in range(4)]
        assert [of_c_code(compiled, arguments) for _ in range(4)] == wanted, arguments


def test_warnings_of_a_function_of_numpy_that_is_compiled_itself_name_the_line_that_calls_it() -> None:
    compiled = T.compile(np.log)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        compiled(np.zeros(2))
        compiled(np.zeros(2))
    told = [warning for warning in found if warning.category is RuntimeWarning]
    here = test_warnings_of_a_function_of_numpy_that_is_compiled_itself_name_the_line_that_calls_it.__code__.co_firstlineno
    assert [(warning.filename, warning.lineno - here) for warning in told] == [(__file__, 4), (__file__, 5)]
