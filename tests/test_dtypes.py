"""Dtypes that only have a name: programs compare with them, and asking for a tensor of one is an error that says what to use."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tracejit as T

NAMES = ["complex64", "complex128", "cfloat", "cdouble", "uint16", "uint32", "uint64"]
USES: list[Any] = [
    lambda d: T.zeros(2, dtype=d), lambda d: T.tensor([1], dtype=d), lambda d: T.ones(2).to(d), lambda d: T.ones(2).type(d),
    lambda d: T.arange(3, dtype=d), lambda d: T.ones(2).sum(dtype=d), lambda d: T.finfo(d), lambda d: T.set_default_dtype(d),
    lambda d: T.promote_types(T.float32, d), lambda d: T.nn.Linear(2, 2, dtype=d), lambda d: T.nn.Linear(2, 2).to(d), lambda d: d.numpy,
    lambda d: T.ones(2).view(d), lambda d: T.empty_like(T.ones(2), dtype=d), lambda d: T.compile(lambda x: x.to(d))(T.ones(2)),
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_dtype_that_no_tensor_has_is_a_name_to_compare_with(name: str) -> None:
    dtype = getattr(T, name)
    assert isinstance(dtype, T.dtype) and dtype is pickle.loads(pickle.dumps(dtype)) is copy.deepcopy(dtype)
    assert T.ones(2).dtype not in (dtype,) and dtype is not T.uint8 and {dtype: 1}[dtype] == 1
    theirs = getattr(pytest.importorskip("torch"), name)
    for attribute in ("is_complex", "is_floating_point", "is_signed", "itemsize"):
        assert getattr(dtype, attribute) == getattr(theirs, attribute), attribute
    assert str(dtype) == str(theirs).replace("torch", "tracejit")


@pytest.mark.parametrize("use", range(len(USES)))
@pytest.mark.parametrize("name", ["complex64", "uint32"])
def test_asking_for_a_tensor_of_it_is_an_error(name: str, use: int) -> None:
    with pytest.raises(TypeError, match=name):
        USES[use](getattr(T, name))


def test_the_error_says_what_to_use() -> None:
    with pytest.raises(TypeError, match="real and imaginary parts in two tensors"):
        T.zeros(2, dtype=T.complex64)
    with pytest.raises(TypeError, match="int64"):
        T.zeros(2, dtype=T.uint16)


def test_all_dtypes_that_there_are_say_whether_they_are_complex() -> None:
    assert not any(d.is_complex for d in (T.bool_, T.int8, T.uint8, T.float16, T.bfloat16, T.float64))
