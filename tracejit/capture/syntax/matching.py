"""Rewrites match statements: each pattern becomes a condition, which calls methods of `__capture__` (handlers/patterns.py).

A condition reads the parts of the subject in Python's order.  Names are bound when the pattern as a whole has matched.
"""

from __future__ import annotations

import ast

from tracejit.capture.syntax.expressions import ExpressionRewriter

__all__ = ["MatchRewriter"]


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _kept(name: str, value: ast.expr) -> ast.expr:
    """`name := value`, as a condition that always holds: a tuple of one element."""
    return ast.Tuple([ast.NamedExpr(ast.Name(name, ast.Store()), value)], ast.Load())


def _is_wildcard(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None


class MatchRewriter(ExpressionRewriter):
    """Turns a match statement into `if` and `elif` statements."""

    def match_as_conditions(self, node: ast.Match) -> tuple[str, list[tuple[ast.expr, list[str]]]]:
        """(the temporary to which the subject has to be assigned; for each case its condition, which binds its names, and the
        temporaries that are not used after it)."""
        subject = self.temporary()
        return subject, [self._case(case, subject) for case in node.cases]

    def _case(self, case: ast.match_case, subject: str) -> tuple[ast.expr, list[str]]:
        first = self.temporaries
        captures: dict[str, str] = {}
        tests = self._tests(case.pattern, subject, captures)
        if captures:
            bound = [ast.NamedExpr(ast.Name(name, ast.Store()), self._bound(name, _load(of))) for name, of in captures.items()]
            tests.append(ast.Tuple(list(bound), ast.Load()))
        if case.guard is not None:
            tests.append(self.truth(case.guard))
        used = [f"__temporary_{number}__" for number in range(first + 1, self.temporaries + 1)]
        return self.located(_all(tests), case.pattern), used

    def _bound(self, name: str, value: ast.expr) -> ast.expr:
        return self.entry_point("argument", value) if self.mangle(name) in self.captured else value

    def _tests(self, pattern: ast.pattern, subject: str, captures: dict[str, str]) -> list[ast.expr]:
        """The conditions for a pattern to match.  captures: name that it binds -> temporary; the temporaries are added to it."""
        if isinstance(pattern, ast.MatchValue):
            is_equal = self.entry_point("compare", ast.Constant("=="), _load(subject), self.visit(pattern.value))
            return [self.located(self.entry_point("truth", is_equal), pattern)]
        if isinstance(pattern, ast.MatchSingleton):
            return [self.entry_point("compare", ast.Constant("is"), _load(subject), ast.Constant(pattern.value))]
        if isinstance(pattern, ast.MatchAs):
            tests = [] if pattern.pattern is None else self._tests(pattern.pattern, subject, captures)
            return tests if pattern.name is None else [*tests, self._captured(pattern.name, _load(subject), captures)]
        if isinstance(pattern, ast.MatchOr):
            return [ast.BoolOp(ast.Or(), [_all(self._tests(part, subject, captures)) for part in pattern.patterns])]
        if isinstance(pattern, ast.MatchClass):
            names = [ast.Constant(self.mangle(name)) for name in pattern.kwd_attrs]
            positional = ast.Constant(len(pattern.patterns))
            call = self.entry_point(
                "match_class", _load(subject), self.visit(pattern.cls), positional, ast.Tuple([*names], ast.Load())
            )
            return self._parts(call, [*pattern.patterns, *pattern.kwd_patterns], pattern, captures)
        if isinstance(pattern, ast.MatchMapping):
            keys = ast.Tuple([self.concretise(key) for key in pattern.keys], ast.Load())
            call = self.entry_point("match_mapping", _load(subject), keys, ast.Constant(pattern.rest is not None))
            rest = [ast.MatchAs(None, pattern.rest)] if pattern.rest is not None else []
            return self._parts(call, [*pattern.patterns, *rest], pattern, captures)
        assert isinstance(pattern, ast.MatchSequence)
        return self._sequence(pattern, subject, captures)

    def _captured(self, name: str, value: ast.expr, captures: dict[str, str]) -> ast.expr:
        if name not in captures:
            captures[name] = self.temporary()
        return _kept(captures[name], value)

    def _parts(self, call: ast.expr, patterns: list[ast.pattern], node: ast.pattern, captures: dict[str, str]) -> list[ast.expr]:
        """The conditions for `patterns` to match the elements of the tuple that `call` gives; it gives None if the subject does
        not match."""
        values = self.temporary()
        bound = ast.NamedExpr(ast.Name(values, ast.Store()), self.located(call, node))
        tests: list[ast.expr] = [ast.Compare(bound, [ast.IsNot()], [ast.Constant(None)])]
        for position, part in enumerate(patterns):
            if not _is_wildcard(part):
                name = self.temporary()
                tests.append(_kept(name, ast.Subscript(_load(values), ast.Constant(position), ast.Load())))
                tests += self._tests(part, name, captures)
        return tests

    def _sequence(self, pattern: ast.MatchSequence, subject: str, captures: dict[str, str]) -> list[ast.expr]:
        patterns = pattern.patterns
        star = next((i for i, part in enumerate(patterns) if isinstance(part, ast.MatchStar)), None)
        parts = [ast.MatchAs(None, part.name) if isinstance(part, ast.MatchStar) else part for part in patterns]
        after = 0 if star is None else len(patterns) - star - 1
        before = len(patterns) - after - (star is not None)
        shape = ast.Constant(before), ast.Constant(star is not None), ast.Constant(after)
        has_length = self.located(self.entry_point("match_length", _load(subject), *shape), pattern)
        if all(map(_is_wildcard, parts)):
            return [has_length]
        if star is None or not _is_wildcard(parts[star]):
            return [
                has_length,
                *self._parts(self.entry_point("match_elements", _load(subject), *shape), [*parts], pattern, captures),
            ]
        tests: list[ast.expr] = [has_length]  # `[a, *_, b]`: Python reads the items one by one, not those of the star
        for position, part in enumerate(parts):
            if not _is_wildcard(part):
                index = position if position < star else position - len(parts)
                name = self.temporary()
                tests.append(_kept(name, self.located(self.entry_point("match_item", _load(subject), ast.Constant(index)), part)))
                tests += self._tests(part, name, captures)
        return tests


def _all(tests: list[ast.expr]) -> ast.expr:
    return ast.BoolOp(ast.And(), tests) if len(tests) > 1 else tests[0] if tests else ast.Constant(True)
