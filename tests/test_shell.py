"""Compiled functions of what programs ask a tensor besides its contents, of older names and of NumPy: they do what eager calls do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit as t
import tracejit.nn.functional as F

FUNCTIONS = {
    't.Tensor([1.,2.,3.])*x': lambda x: t.Tensor([1.,2.,3.])*x,
    't.FloatTensor([1,2,3])+x': lambda x: t.FloatTensor([1,2,3])+x,
    't.Tensor(3).zero_()+x': lambda x: t.Tensor(3).zero_()+x,
    'x.new_tensor([1.,2.,3.])*x': lambda x: x.new_tensor([1.,2.,3.])*x,
    'x.new([1.,2.,3.])*x': lambda x: x.new([1.,2.,3.])*x,
    'x.unsqueeze_(0)*2': lambda x: x.unsqueeze_(0)*2,
    'x.clone().unsqueeze_(0)*2': lambda x: x.clone().unsqueeze_(0)*2,
    'x.view(t.int32)': lambda x: x.view(t.int32),
    't.mul(x,2,out=t.empty(3))': lambda x: t.mul(x,2,out=t.empty(3)),
    't.asarray([1.,2.,3.])*x': lambda x: t.asarray([1.,2.,3.])*x,
    'x.data*2': lambda x: x.data*2,
    'x.data.add_(1)+x': lambda x: x.data.add_(1)+x,
    't.equal(x,x)': lambda x: t.equal(x,x),
    'x*2 if t.allclose(x,x+1) else x*3': lambda x: x*2 if t.allclose(x,x+1) else x*3,
    'x//2': lambda x: x//2,
    '(x.long()//x.long())': lambda x: (x.long()//x.long()),
    'x[np.array([0,2])]': lambda x: x[np.array([0,2])],
    'x[t.tensor(True)]': lambda x: x[t.tensor(True)],
    'x[[0,1]]': lambda x: x[[0,1]],
    'x.median()': lambda x: x.median(),
    'x.nanmedian()': lambda x: x.nanmedian(),
    'F.binary_cross_entropy(x.sigmoid(), x.sigmoid())': lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid()),
    'x.shape[0:1]+(2,)': lambda x: x.shape[0:1]+(2,),
    't.zeros(x.shape+(1,))': lambda x: t.zeros(x.shape+(1,)),
    'f"{x.sum()}"': lambda x: f"{x.sum()}",
    'f"{x.sum():.2f}"': lambda x: f"{x.sum():.2f}",
    "x.to(t.device('cpu'), float)": lambda x: x.to(t.device('cpu'), float),
    'x.device': lambda x: x.device,
    't.zeros(3, device=x.device)+x': lambda x: t.zeros(3, device=x.device)+x,
    "x.type('torch.DoubleTensor')": lambda x: x.type('torch.DoubleTensor'),
    'x.sum(axis=0, keepdims=True)': lambda x: x.sum(axis=0, keepdims=True),
    'x.max(axis=0)': lambda x: x.max(axis=0),
    't.finfo(x.dtype).eps*x': lambda x: t.finfo(x.dtype).eps*x,
    't.is_tensor(x)': lambda x: t.is_tensor(x),
    'x.as_subclass(t.Tensor)*2': lambda x: x.as_subclass(t.Tensor)*2,
    'np.sqrt(x)': lambda x: np.sqrt(x),
    'np.ones(3)*x': lambda x: np.ones(3)*x,
    'np.add(x, np.float64(2))': lambda x: np.add(x, np.float64(2)),
    'x.apply_(lambda v: v+1)': lambda x: x.apply_(lambda v: v+1),
    'x.clone().resize_(2)': lambda x: x.clone().resize_(2),
    't.linalg.svd(x.reshape(1,3))[1]': lambda x: t.linalg.svd(x.reshape(1,3))[1],
    'x.sort()': lambda x: x.sort(),
    't.cuda.is_available()': lambda x: t.cuda.is_available(),
    'x.storage_offset()': lambda x: x.storage_offset(),
    'x.copy_(x*2)': lambda x: x.copy_(x*2),
    't.from_dlpack(x)*2': lambda x: t.from_dlpack(x)*2,
    't.get_default_device()': lambda x: t.get_default_device(),
}  # fmt: skip


def canonical(value: Any) -> Any:
    if isinstance(value, t.Tensor):
        return value.tolist(), str(value.dtype), value.requires_grad, value.shape
    if isinstance(value, tuple):
        return tuple(map(canonical, value))
    return type(value).__name__, str(value)


def outcome(function: Any, data: list[float], requires_grad: bool) -> Any:
    x = t.tensor(data, requires_grad=requires_grad)
    try:
        return canonical(function(x)), canonical(x)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("text", FUNCTIONS)
def test_a_compiled_function_does_what_an_eager_one_does(text: str, requires_grad: bool) -> None:
    function = FUNCTIONS[text]
    compiled = t.compile(function)
    for data in ([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], [3.0, 1.0, 2.0], [5.0, 5.0, 0.5], [3.0, 1.0, 2.0]):
        assert outcome(compiled, data, requires_grad) == outcome(function, data, requires_grad)
