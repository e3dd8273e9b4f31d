"""What objects of C code refer to, replaced."""

from __future__ import annotations

import functools
import gc
import itertools
import sys

import pytest

from tracejit.cpython.referents import replace_referent


class Mark:
    """Something to be replaced."""


def started(iterator):
    next(iterator)
    return iterator


@pytest.mark.parametrize(
    ("make", "new", "result"),
    [
        (lambda mark: (1, mark, mark), 7, lambda t: t == (1, 7, 7)),
        (lambda mark: map(mark, [1, 2]), str, lambda m: list(m) == ["1", "2"]),
        (lambda mark: started(itertools.accumulate([mark, 2, 9], max)), 5, lambda a: list(a) == [5, 9]),
        (lambda mark: started(itertools.pairwise([mark, mark, 3])), 5, lambda p: next(p) == (5, 3)),
        (lambda mark: slice(mark, 3), 1, lambda s: s == slice(1, 3)),
        (lambda mark: functools.partial(str, mark).args, 3, lambda args: args == (3,)),
    ],
    ids=["tuple", "map", "accumulate", "pairwise", "slice", "partial"],
)
def test_every_reference_of_an_object_is_replaced_and_counted(make, new, result):
    mark = Mark()
    before = sys.getrefcount(mark)
    owner = make(mark)
    assert replace_referent(owner, mark, new)
    assert all(part is not mark for part in gc.get_referents(owner))
    if type(owner) in (tuple, map, slice):  # the others go through a list, which has it, too
        assert sys.getrefcount(mark) == before
    assert result(owner)


def test_an_object_that_does_not_refer_to_it_is_left_alone():
    owner = (1, 2)
    assert not replace_referent(owner, Mark(), 3)
    assert owner == (1, 2)


def test_the_memory_of_a_generator_is_left_alone():
    mark = Mark()

    def values(held):
        yield held

    generator = values(mark)
    assert not replace_referent(generator, mark, 3)
    assert next(generator) is mark
