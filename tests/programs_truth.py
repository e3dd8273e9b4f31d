"""How often Python asks for the truth of an operand, in each kind of expression.  See capture_programs.py."""

from __future__ import annotations

import itertools

from registered_programs import program, x


class Asked:
    """Something whose truth is asked, and that counts how often."""

    def __init__(self, value):
        self.value, self.asked = value, 0

    def __bool__(self):
        self.asked += 1
        return self.value

    def __lt__(self, other):
        return Asked(self.value < other.value)


EXPRESSIONS = {
    "and_in_or": lambda p, q, r: (p and q) or r,
    "or_in_and": lambda p, q, r: (p or q) and r,
    "or_behind_and": lambda p, q, r: p and (q or r),
    "or_in_or": lambda p, q, r: (p or q) or r,
    "and_in_and": lambda p, q, r: (p and q) and r,
    "not_and": lambda p, q, r: not (p and q),
    "not_or": lambda p, q, r: not (p or q),
    "not_not": lambda p, q, r: not not p,
    "three_levels": lambda p, q, r: ((p and q) or r) and p,
    "three_levels_behind": lambda p, q, r: (p and (q or r)) or p,
    "four_in_a_row": lambda p, q, r: p and q and r and p,
    "operand_of_a_comparison": lambda p, q, r: (p and q) is p,
    "choice_as_an_operand": lambda p, q, r: (p if q else r) and p,
    "chain_and": lambda p, q, r: p < q < r and p,
    "chain_or": lambda p, q, r: p < q < r or p,
    "condition_and_in_or": lambda p, q, r: 1 if (p and q) or r else 2,
    "condition_not_and": lambda p, q, r: 1 if not (p and q) else 2,
    "condition_not_or_and": lambda p, q, r: 1 if not (p or q) and r else 2,
    "condition_choice": lambda p, q, r: 1 if (p if q else r) else 2,
    "condition_chain": lambda p, q, r: 1 if p < q < r else 2,
    "condition_not_chain": lambda p, q, r: 1 if not p < q < r else 2,
    "condition_mixed": lambda p, q, r: 1 if p and not q or r else 2,
    "clause_of_a_comprehension": lambda p, q, r: [1 for _ in "a" if (p and q) or r],
    "deep_condition": lambda p, q, r: 1 if ((p or q) and (q or r)) or not (p and r) else 2,
}


def truth(expression):
    def maker():
        p, q, r = Asked(False), Asked(False), Asked(False)

        def fn(a):
            found = expression(p, q, r)
            if found is p:
                return a * 2
            if found is q:
                return a * 3
            if found is r:
                return a * 5
            return a * 7 if found else a * 11

        def go(f, values):
            p.value, q.value, r.value = values
            return f(x(1, 2)), p.asked, q.asked, r.asked

        return (
            fn,
            [lambda f, v=v: go(f, v) for v in itertools.product((False, True), repeat=3)],
            lambda: (p.asked, q.asked, r.asked),
        )

    return maker


for _name, _expression in EXPRESSIONS.items():
    _maker = truth(_expression)
    _maker.__name__ = f"truth_of_{_name}"
    program()(_maker)


@program()
def truth_in_statements():
    p, q = Asked(False), Asked(True)

    def fn(a):
        if p or (q and not p):
            a = a * 2
        while (p or not q) and a.shape[0] > 5:
            a = a * 3
        assert q or p, "no"
        match 1:
            case 1 if p or q:
                a = a + 1
        return a

    def go(f, v):
        p.value, q.value = v
        try:
            return f(x(1, 2)), p.asked, q.asked
        except AssertionError as e:
            return str(e), p.asked, q.asked

    return fn, [lambda f, v=v: go(f, v) for v in itertools.product((False, True), repeat=2)], None
