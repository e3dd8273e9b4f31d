"""Numbers of all kinds: computed with, compared, formatted, as sizes, keys and bounds.  See capture_programs.py."""

from __future__ import annotations

import cmath
import math
import operator
import random
import statistics
import types
from decimal import Decimal
from fractions import Fraction

import numpy as np
from registered_programs import Box, over, program, with_change, x

import tracejit as T


@program()
def arithmetic_of_ints():
    def fn(a, n, m):
        return (
            a * (n + m) * (n - m) + n * m - n // m + n % m,
            [a * (n << 1), a * (n >> 1), a * (n & m), a * (n | m), a * (n ^ m)],
            a * -n + +m + ~n + abs(n - m),
        )

    return over(fn, (7, 2), (8, 3), (-7, 2), (7, -2), (0, 5))


@program()
def arithmetic_of_floats():
    def fn(a, s, t):
        return a * (s + t) - s / t + s // t - s % t + s**2 - t**0.5 + (-s) + abs(t)

    return over(fn, (7.5, 2.0), (8.0, 3.25), (-7.0, 2.5), (0.1, 0.2))


@program()
def powers_of_negative_numbers():
    def fn(a, n):
        return a * (-1) ** n, (-1) ** n, (-2.0) ** n, -(2**n), 2**-n, (-n) ** 2, n**n**2

    return over(fn, 1, 2, 3, 4, 0, 5)


@program()
def arithmetic_of_mixed_types():
    def fn(a, p, q):
        return a * (p + q) + (p * q) - (p - q)

    return over(fn, (2, 0.5), (2.0, 3), (True, 2), (2, True), (True, True), (2.5, False), (2, 0.5))


@program()
def types_of_results():
    def fn(a, p, q):
        return (
            a * 1,
            type(p + q).__name__,
            type(p / q).__name__,
            type(p // q).__name__,
            type(p**q).__name__,
            isinstance(p, int),
            isinstance(p, (float, str)),
            type(p) is int,
        )

    return over(fn, (2, 3), (2.0, 3), (True, 1), (2, -1), (4, 2))


@program(reason="number_range")
def divmod_and_rounding():
    def fn(a, s):
        q, r = divmod(s, 3)
        return (
            a * q + r,
            round(s),
            round(s, 1),
            math.floor(s),
            math.ceil(s),
            math.trunc(s),
            int(s),
            a * round(s) + math.floor(s) - math.ceil(s),
        )

    return over(fn, 7.25, -7.25, 2.5, 3.5, -0.5, 0.5, 1e20)


@program()
def rounding_of_ints():
    def fn(a, n):
        return a * round(n, -1) + round(n), round(n, -2), n.bit_length(), n.real, n.numerator, divmod(n, 7)

    return over(fn, 125, -135, 15, 25)


@program()
def big_ints():
    def fn(a, n):
        return a * float(n % 1000), n * n, n // 3, n > 2**64, hash(n), n & 0xFF, str(n)[-3:], (n << 5) - 1

    return over(fn, 2**70 + 1, 2**63, -(2**80), 10**30, 5)


@program()
def huge_ints_beyond_text():
    def fn(a, n):
        return a * (n % 7), n == 10**5000, n > 5

    return over(fn, 10**5000, 10**5000 + 1, 10**5000)


@program()
def huge_int_stored():
    box = types.SimpleNamespace()

    def fn(a, n):
        box.n = n * 2
        return a

    return fn, [lambda f: f(x(1), 10**5000)] * 2, lambda: box.n % 1000003


@program(reason="number_range")
def int_operands_beyond_64_bits():
    def fn(a, n):
        return a * n

    return over(fn, 2**62, 2**64, 2**70, 3)


@program()
def int_tensor_times_float_number():
    def fn(a, s):
        return a.long() * s, a.long() + s, a.long() / s

    return over(fn, 2, 2.5, True, 3)


@program()
def signed_zeros():
    def fn(a, s):
        return a * s, s == 0, math.copysign(1, s), str(s), -s, s + 0.0, s * -1, [s], abs(s), max(s, 0.0), min(0.0, s)

    return over(fn, 0.0, -0.0, 0.0, 0)


@program()
def signed_zero_through_arithmetic():
    def fn(a, s):
        return T.copysign(a, T.full((2,), s * -1.0)), a / (s - 1.0)

    return over(fn, 0.0, -0.0, 1.0, 0.0)


@program()
def nan_argument():
    def fn(a, s):
        if s != s:
            return a * 0
        return a * s if s < 1 else a - s

    return over(fn, float("nan"), 2.0, 0.5, float("nan"), float("inf"))


@program()
def infinities():
    def fn(a, s):
        try:
            return a * int(s)
        except (OverflowError, ValueError) as e:
            return a, str(e), s > 1e308, math.isinf(s), -s

    return over(fn, float("inf"), float("-inf"), 2.0, float("nan"))


@program()
def overflow_caught():
    def fn(a, s):
        try:
            return a * math.exp(s)
        except OverflowError as e:
            return a * 0, e.args

    return over(fn, 1000.0, 1.0, 2.0, 5000.0)


@program()
def float_overflow_in_power():
    def fn(a, s):
        try:
            return a * (s**10)
        except OverflowError as e:
            return a * 0, e.args[1] if len(e.args) > 1 else e.args

    return over(fn, 1e100, 2.0, 1e200, 3.0)


@program()
def zero_division_caught():
    def fn(a, n):
        try:
            return a * (10 / n)
        except ZeroDivisionError as e:
            return a * 0, str(e)

    return over(fn, 0, 5, 0.0, 2.0, 0, False)


@program()
def zero_division_of_all_kinds():
    def fn(a, n):
        out = []
        for op in (operator.truediv, operator.floordiv, operator.mod, divmod, pow):
            try:
                op(2 if op is not pow else 0, n if op is not pow else n - 1)
                out.append("ok")
            except ZeroDivisionError as e:
                out.append(str(e))
        return a, out

    return over(fn, 0, 1, 0.0, 3)


@program()
def domain_errors():
    def fn(a, s):
        try:
            return a * math.sqrt(s) * math.log(s)
        except ValueError as e:
            return a * 0, str(e)

    return over(fn, 4.0, -1.0, 0.0, 9.0)


@program()
def complex_results():
    def fn(a, s):
        z = s**0.5
        return a * abs(z), type(z).__name__, z

    return over(fn, 4.0, -4.0, 9.0)


@program()
def complex_arguments():
    def fn(a, z):
        return a * z.real + z.imag, z * 2, abs(z), z.conjugate(), z == 1 + 2j, f"{z:.1f}", cmath.phase(z)

    return over(fn, 1 + 2j, 1 - 2j, complex(-0.0, 0.0), complex(0.0, -0.0))


@program()
def numbers_as_sizes_and_dims():
    def fn(a, n, d):
        return T.zeros(n, 2).sum() + a.unsqueeze(d).sum(d), T.arange(n), a.reshape(2, *[1] * n).shape, a.expand(n, 2)

    return over(fn, (2, 0), (3, 1), (2, -1), (2, 0))


@program()
def numbers_as_bounds_and_steps():
    def fn(a, n):
        big = T.arange(10.0)
        return a.sum() + big[n:].sum() + big[:-n].sum() + big[::n].sum() + big[n] + big[-n], big.narrow(0, n, 2), big.split(n)[0]

    return over(fn, 2, 3, 2)


@program()
def loop_counts():
    def fn(a, n):
        for i in range(n):
            a = a * 2 + i
        for i in reversed(range(1, n, 2)):
            a = a - i
        while n > 2:
            n -= 1
            a = a + 1
        return a

    return over(fn, 3, 5, 0, 3)


@program()
def fractions_as_numbers():
    def fn(a, p):
        q = p + Fraction(1, 3)
        return a * float(q), q, q > 1, round(q, 2), Fraction(0.5), math.floor(q)

    return over(fn, Fraction(1, 2), Fraction(2, 3), Fraction(1, 2))


@program()
def sum_of_decimals():
    def fn(a, p):
        return a * float(p + Decimal("0.1"))

    return over(fn, Decimal("0.5"), Decimal("1.5"))


@program()
def numbers_of_numpy():
    def fn(a, s):
        return a * s, s + 1, float(s) * 2, s.item(), type(s).__name__, s > 1, round(float(s), 1), f"{s:.2f}", [s, s * 2]

    return over(fn, np.float32(1.5), np.float64(1.5), np.int64(2), np.bool_(True), np.float32(2.5))


@program()
def products_of_numbers_of_numpy():
    def fn(a, s):
        return a * float(s * s)

    return over(fn, np.float32(2.0), np.int32(3), np.float32(1.5))


@program(reason="unbuildable")
def subclasses_of_numbers():
    class Count(int):
        def __add__(self, o):
            return Count(int(self) + o + 1)

    class Plain(float):
        pass

    def fn(a, n, s):
        return (
            a * n,
            n + 1,
            type(n + 1).__name__,
            s * 2,
            type(s * 2).__name__,
            a + s,
            n == 2,
            {2: "t"}.get(n),
            [0.0, 1.0, 2.0, 3.0][n],
        )

    return over(fn, (Count(2), Plain(1.5)), (Count(3), Plain(2.5)))


@program()
def bools_as_numbers():
    def fn(a, flag):
        return (
            a * flag + (not flag),
            flag + 1,
            sum([flag, flag, True]),
            flag is True,
            [1.0, 2.0][flag],
            f"{flag:d} {flag}",
            flag & 1,
            flag ^ True,
            -flag,
            {True: "y", False: "n"}[flag],
        )

    return over(fn, True, False, True)


@program()
def bool_int_and_float_alternate():
    def fn(a, v):
        return a * 2 if v == 1 else a, repr(v), type(v).__name__

    return over(fn, 1, True, 1.0, 0, False, 0.0, -0.0)


@program()
def numbers_formatted():
    def fn(a, n, s):
        return (
            a,
            f"{n:05d} {n:x} {n:,} {s:.3f} {s:e} {s:g} {s!r} {n!s:>6} {s:+.1%}",
            "%d %s %.2f" % (n, s, s),
            "{:>8} {k:^6}".format(n, k=s),
            str(n),
            repr(s),
            hex(n),
            bin(n),
            oct(n),
            format(s, ".2f"),
            str(round(s, 1)),
            int(str(n)),
            float(repr(s)),
        )

    return over(fn, (1234, 0.125), (7, -2.5), (1234, 0.125))


@program()
def numbers_parsed():
    def fn(a, t):
        try:
            return a * float(t), int(float(t))
        except ValueError as e:
            return a, str(e)

    return over(fn, "2.5", "nope", "1e3")


@program()
def sums_carry_errors():
    def fn(a, s):
        return (
            a,
            sum([s, 0.1, 0.2, 1e16, -1e16]),
            sum([0.1] * 10),
            sum((s, 1), 0.5),
            sum(v * s for v in (0.1, 0.2, 0.3)),
            math.fsum([s, 0.1, 0.2]),
            sum([1, 2.5, True]),
            sum([]),
            sum([], 2.5),
        )

    return over(fn, 0.3, 0.7, 0.3)


@program()
def sums_mix_numbers_and_tensors():
    def fn(a, s):
        return sum([s, 1, a, 2.0]), sum([a, a], s), sum([s, s, True]), sum([[1], [2]], []), sum(((1,), (2,)), ())

    return over(fn, 0.5, 2, 0.5)


@program()
def products_and_means():
    def fn(a, s):
        return (
            a * math.prod([s, 2.0]),
            math.hypot(s, 1.0),
            math.dist([s, 0.0], [1.0, 1.0]),
            max(s, 1.0),
            min([s, 1.0, 2]),
            sorted([s, 1.0])[0],
            statistics.mean([s, 1.0]),
        )

    return over(fn, 0.5, 2.0, 0.5)


@program()
def numbers_clamped():
    def fn(a, s):
        lo = max(0.0, min(1.0, s))
        return a * lo, 0 <= s <= 1, s if s > 0 else -s, (s > 0) - (s < 0)

    return over(fn, 0.5, 2.0, -1.0, 0.0, 0.5)


@program()
def numbers_as_keys_and_elements():
    table = {1: 2.0, 2: 3.0, 2.5: 4.0}

    def fn(a, n):
        return a * table.get(n, 9.0), n in table, n in (1, 2), n in {2, 3}, [n].index(n), {n: 1}, {n, n}, (n, n) == (n, 2)

    return over(fn, 1, 2, 2.5, 1.0, True, 7)


@program()
def learning_rate_schedule():
    state = types.SimpleNamespace(step=0)

    def fn(a, base):
        state.step += 1
        lr = base * 0.5 * (1 + math.cos(math.pi * state.step / 10)) if state.step > 2 else base * state.step / 2
        return a * lr

    return fn, [lambda f: f(x(1), 0.1), lambda f: f(x(1), 0.2)], lambda: state.step


@program()
def counter_that_wraps():
    state = types.SimpleNamespace(i=0)

    def fn(a):
        state.i = (state.i + 1) % 3
        return a * state.i + (100.0 if state.i == 0 else 0.0)

    return fn, [lambda f: f(x(1))] * 4, lambda: state.i


@program()
def shift_by_a_negative_number():
    def fn(a, n):
        try:
            return a * (8 >> n), 1 << n
        except ValueError as e:
            return a, str(e)

    return over(fn, 1, -1, 2)


@program()
def powers_of_integers():
    def fn(a, n):
        return a * (2**n), pow(3, n, 7), pow(2.0, n), a**n, math.pow(2, n)

    return over(fn, 2, 3, 0, 2)


@program(reason="number_range")
def integer_tensor_with_a_negative_power():
    def fn(a, n):
        try:
            return a.long() ** n
        except RuntimeError as e:
            return a, type(e).__name__

    return over(fn, 2, -1, 3)


@program()
def comparisons_of_kinds_of_numbers():
    def fn(a, n):
        return a, n == 1, n == 1.0, n == "1", n != 1, n is None, 1 < n, n in [1.0], n == np.float64(1), n == Fraction(1)

    return over(fn, 1, 1.0, True, 2)


@program()
def sequences_times_a_number():
    def fn(a, n):
        return a * n, "ab" * n, [0.5] * n, (1,) * n, n * "x", [a] * n

    return over(fn, 2, 3, 0, True)


@program()
def ranges_from_numbers():
    def fn(a, n):
        r = range(0, n, 2)
        return (
            a * len(r) + sum(r),
            r[1] if len(r) > 1 else None,
            2 in r,
            list(r[::-1]),
            r == range(0, n, 2),
            r.start,
            r.stop,
            r.index(0) if r else -1,
        )

    return over(fn, 5, 3, 0, 5)


@program()
def methods_of_numbers():
    def fn(a, s, n):
        return (
            a,
            s.is_integer(),
            s.hex(),
            s.as_integer_ratio(),
            n.to_bytes(2, "big"),
            n.bit_count(),
            s.real,
            s.conjugate(),
            n.__add__(1),
            float.fromhex("0x1p3"),
            int.from_bytes(b"\x01\x02", "little"),
        )

    return over(fn, (2.0, 5), (2.5, 7))


@program()
def generator_made_inside():
    def fn(a):
        r = random.Random(0)
        return a * r.random()

    return over(fn, (), ())


@program()
def tensors_of_many_numbers():
    box = Box(step=0, values=[k / 8 for k in range(80)], rows=[[k, k + 1] for k in range(40)])

    def fn(a):
        box.step += 1
        box.values[0] = box.step * 1.5
        many = [v * box.step for v in box.values]
        leaf = T.tensor(many, requires_grad=True)
        (leaf * leaf * a.sum()).sum().backward()
        rows = tuple([r[0] + box.step, r[1]] for r in box.rows)
        order = [(k * 3 + box.step) % 80 for k in range(70)]
        return (
            T.tensor(many), T.tensor(many, dtype=T.float64), T.as_tensor(rows), leaf, leaf.grad,
            T.tensor([many[:35], many[35:70]]), T.arange(80)[order], T.tensor(rows, dtype=T.float32),
        )  # fmt: skip

    def other():
        box.rows[0][0] = 2.5

    return fn, with_change(lambda: None, other), lambda: box.step
