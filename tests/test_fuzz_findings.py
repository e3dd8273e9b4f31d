"""Programs that the fuzzer found, made small: each was once another one compiled than eager.

Each is run eagerly and compiled in several ways, three rounds of its calls, and compared by what can be seen (tests/fuzz).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tracejit as T
from tests.fuzz.check import check
from tests.fuzz.compare import SAMPLES, compare, unexplained
from tests.fuzz.facts import Facts, facts
from tests.fuzz.noise import inexact, rounding_noise
from tests.fuzz.run import WAYS, Program
from tracejit.core.op import REGISTRY, Kind

FINDINGS = {
    "a loop that carries what is in no row-major memory, with loops in it": """
        class Box:
            def __init__(self, k):
                self.k = k
        box = Box(2.0)
        def target(a3, a4):
            v6 = T.copysign(a4, a3)
            turn7 = 0
            while turn7 < 3 and v6.abs().sum() > 1.3:
                turn7 += 1
                for i8 in [0.5, 2]:
                    box.k *= 2
                    v6 = v6 >= 0
                v11, v12, v13 = (a3, a3 * 0.5 - 0.1, 0)
                for i17 in range(2):
                    v18 = v11 - 0.25
                    if T.rand(()) < 0.4:
                        v12 = v11[..., -1:] * v12
                    v18 = v11[..., :1] + v11
                    if v11.sum() < 0:
                        pass
        def call(f):
            a3 = T.tensor([[1.277, -1.506], [0.656, -0.238]], dtype=T.float64)
            f(a3, 54)
            turned = T.tensor([[-1.994, -1.08], [0.778, -0.419]], dtype=T.float64).transpose(-1, -2)
            return f(turned, turned), box.k
    """,
    "a number that leaves, rounded to digits, as an operand": """
        def target(x):
            first, second = x.tolist()
            y = x * round(second, 1)
            return y, T.tensor([round(first, 0), round(second, 2)]), T.full((2,), round(first, 1)), x if round(first, 1) > 0.4 else -x
        def call(f):
            return [f(T.tensor(v)) for v in ([0.472, -0.111], [-0.25, 0.06], [0.46, 1.25])]
    """,
    "what is put into a list before a call that ends the recording is a number": """
        import sys
        kept = []
        def target(x):
            kept.extend([x.item(), sys.getsizeof(print) > 0])
            kept.extend({'a': x.item(), 'b': sys.getsizeof(print) > 0}.values())
            kept.extend((x.item(), [(x.item(), 1), sys.getsizeof(print) > 0][0]))
            return x
        def call(f):
            return f(T.tensor(0.472)), kept
    """,
    "the same where each expression is the first to end it": """
        import sys
        kept = []
        def of_a_dictionary(x):
            kept.extend({'a': x.item(), 'b': sys.getsizeof(print) > 0}.values())
        def of_a_tuple(x):
            kept.extend((x.item(), (x.item(), sys.getsizeof(print) > 0)))
        def of_a_set(x):
            kept.extend(sorted({x.item(), sys.getsizeof(print) > 0}))
        def of_a_list(x):
            kept.extend([[x.item(), 2], (x.item(), sys.getsizeof(print) > 0)])
        makers = [of_a_dictionary, of_a_tuple, of_a_set, of_a_list]
        def target(x, i):
            makers[i](x)
            return x
        def call(f):
            return [f(T.tensor(0.472), i) for i in range(4)], kept
    """,
    "functions of numbers that tensors do not have": """
        def told(function, x):
            try:
                return function(x)
            except TypeError as error:
                return str(error)
        def target(x):
            try:
                first = round(x)
            except TypeError as error:
                first = str(error)
            return first, [told(f, x) for f in (abs, round, math.floor, math.ceil, math.trunc)]
        def call(f):
            return f(T.tensor(0.472))
    """,
    "an array that NumPy copies from a tensor lies in memory as that does": """
        def target(x, y):
            return np.array(x), np.array(x.t()), np.array(y, order='F'), np.asarray(y), np.array([x, y]), np.array(x.t(), dtype='f8')
        def call(f):
            return f(T.tensor([0.5, 1.5]).expand(2, 2), T.arange(4.0).reshape(2, 2).t())
    """,
    "the extreme of a list of one number that leaves": """
        def target(x):
            return min(x.tolist()), max([x.sum().item()]), min((x.sum().item(),), default=3), max(v for v in x.tolist())
        def call(f):
            return [f(T.tensor([v])) for v in (0.5, -1.5, math.nan)]
    """,
    "scalars of NumPy, computed of what left, as operands": """
        def target(x, y):
            e = np.exp(y.item())
            return x * e, x + np.float32(y.item()), x.clamp(max=e), T.full((2,), e), x * (e > 1), T.where(x > 0, x, e), T.arange(3) * e
        def call(f):
            return [f(made('float32', (3,), 1), T.tensor(v)) for v in (0.5, -1.5, 2.0, 0.5)]
    """,
    "scalars of NumPy, computed of numbers of the world, as operands": """
        table = {'k': 0.5}
        def target(x):
            return x * np.exp(table['k']), x.clamp(max=np.sqrt(table['k'])), T.full((2,), np.log(table['k']))
        def call(f):
            table['k'] += 0.25
            return f(made('float32', (3,), 1))
    """,
    "the text of a truth value in a tensor without dimensions": """
        def target(x):
            return f'{x}', '{} {!r}'.format(x, x), format(x, '>7'), f'{x > 0} {x!s}', '%s' % x
        def call(f):
            return [f(T.tensor(v)) for v in (True, False, True, False)]
    """,
    "loggers and warnings of unusual kinds name the line that tells them": """
        import io, logging, warnings
        stream = io.StringIO()
        log = logging.Logger('told')
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter('%(lineno)d %(funcName)s %(message)s'))
        log.addHandler(handler)
        def deeper(x):
            log.info('here', stacklevel=2)
            log.warning({})
            warnings.warn('there', UserWarning, 2)
            warnings.warn('there', stacklevel=2)
            return x * 2
        def target(x):
            log.warning({})
            warnings.warn(DeprecationWarning(f'{x}'))
            return deeper(x)
        def call(f):
            return f(T.ones(2)), stream.getvalue()
    """,
    "a logger that is told what ends the recording names the line that tells it": """
        import io, logging, warnings
        stream = io.StringIO()
        log = logging.Logger('told')
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter('%(lineno)d %(funcName)s %(message)s'))
        log.addHandler(handler)
        def target(x):
            log.info(repr(T.nn.Linear(1, 1)))
            warnings.warn(repr(T.nn.Linear(1, 1)))
            return x
        def call(f):
            return f(T.ones(2)), stream.getvalue()
    """,
    "an index of rows without elements is out of range": """
        w = T.zeros(3, 0)
        def target(i):
            taken = w[i], w.index_select(0, i), T.nn.functional.embedding(i, w)
            w[i] = 1.0
            w.index_add_(0, i, T.zeros(len(i), 0))
            return taken
        def call(f):
            f(T.tensor([2, 1]))
            try:
                return f(T.tensor([3, 1]))
            except IndexError as error:
                return str(error)
    """,
    "rounded results near the largest number": """
        def target(x):
            return x.exp2()
        def call(f):
            return f(T.tensor([0, 1, 127, 126, 3], dtype=T.uint8))
    """,
    "what a gradient needs of an input is what was there before the call changes it": """
        w = T.tensor(0.472)
        def target(x):
            y = w * x
            w.atanh_()
            return y
        def call(f):
            x = made('float64', (5,), 1).requires_grad_()
            with T.no_grad():
                w.fill_(0.4)
            total(f(x)).backward()
            return x.grad, w
    """,
    "and beside a step of the host, too": """
        w, m = T.tensor(0.472), T.eye(2) * 2
        def target(x):
            y = w * x + T.linalg.inv(m).sum()
            w.atanh_()
            return y
        def call(f):
            x = made('float64', (5,), 1).requires_grad_()
            with T.no_grad():
                w.fill_(0.4)
            total(f(x)).backward()
            return x.grad, w
    """,
    "what a step of the host raises in a backward pass is what eager raises": """
        def target(x):
            return [x.logdet()]
        def call(f):
            values = [[math.nan, -1.0, 2.0], [1.5, math.inf, -math.inf], [0.0, 0.2, -1.7]]
            f(T.tensor(values).requires_grad_())[0].backward()
    """,
    "a view that is made a leaf in the call": """
        def target(x):
            y = x * 2
            with T.no_grad():
                v = y.reshape(-1)
                v.requires_grad_()
                v = v.reshape(-1)
            return v
        def call(f):
            r = f(made('float32', (3,), 1).requires_grad_())
            for t in r:
                t.fill_(0)
            return r
    """,
    "a number that is an argument is an exponent whose gradient is asked for inside": """
        def target(x, p):
            x.pow(p).sum().backward()
            return x.grad
        def call(f):
            return [f(made('float32', (3, 4), 1).requires_grad_(), p) for p in (0, 2, 3, 1, True, 0.5, 2.0)]
    """,
    "a constant is converted where NumPy warns": """
        def target(x, p=math.nan):
            return x.new_full(x.shape, p, dtype=T.uint8) * x
        def call(f):
            import warnings
            with warnings.catch_warnings():
                warnings.simplefilter('error')
                return f(made('float32', (3, 4), 1))
    """,
    "a view that is a leaf stays one when its memory is written": """
        w = made('float32', (3,), 1)
        def target(value):
            v = w[1:]
            v[:] = value
            v.requires_grad_()
            with T.no_grad():
                w[0] = 2.0
            u = v[:1]
            with T.no_grad():
                w[1] = 3.0
            return v, u
        def call(f):
            v, u = f(5.0)
            (u * 2).sum().backward()
            return v, u, v.grad, w.requires_grad
    """,
    "gradients that have gradients are row-major": """
        def target(x):
            return (-x).abs().sum()
        def call(f):
            x = made('float32', (3, 4), 1).requires_grad_().transpose(1, 0)
            return T.autograd.grad(f(x), x, create_graph=True)
    """,
    "the logarithm of the gamma function of -inf and of subnormal numbers": """
        def target(x):
            return x.lgamma()
        def call(f):
            values = [math.nan, math.inf, -math.inf, 1e-310, -1e-310, 0.0, -0.0, -1.0, 1e-45]
            return f(T.tensor(values, dtype=T.float64)), f(T.tensor(values))
    """,
    "a view argument written under no_grad has a new position on the tape": """
        def target(a, b):
            with T.no_grad():
                a *= 0.5
            return a * b
        def call(f):
            a = made('float32', (2, 3), 1).requires_grad_().t()
            b = made('float32', (3, 2), 2).requires_grad_()
            return T.autograd.grad(total(f(a, b)), [a, b], allow_unused=True)
    """,
    "a result that was written under no_grad keeps its position": """
        def target(a, b):
            with T.no_grad():
                a *= 0.5
            return a * b
        def call(f):
            a = made('float32', (2, 3), 1).requires_grad_() * 1
            b = made('float32', (2, 3), 2).requires_grad_()
            return T.autograd.grad(total(f(a, b)), [a, b], allow_unused=True)
    """,
    "a view under no_grad of a hidden result follows it once written": """
        def target(x):
            h = x * x
            with T.no_grad():
                v = h[1:]
            return v
        def call(f):
            x = made('float32', (3, 4), 1).requires_grad_()
            r = f(x)
            before = r.requires_grad
            r.mul_(2)
            total(r).backward()
            return before, r, x.grad
    """,
    "a detached view of a hidden result stays detached": """
        def target(x):
            return (x * x).detach()[1:]
        def call(f):
            x = made('float32', (3, 4), 1).requires_grad_()
            return f(x).mul_(2)
    """,
    "gradients asked for inside share memory neither with each other nor with the cotangent": """
        def target(x, y):
            g = T.ones(3, 4)
            given = T.autograd.grad(x + y, [x, y], g)
            return T.autograd.grad((x + y).sum(), [x, y]), given, g
        def call(f):
            return f(made('float32', (3, 4), 1).requires_grad_(), made('float32', (3, 4), 2).requires_grad_())
    """,
    "gradients asked for inside are row-major": """
        def target(x):
            return T.autograd.grad(x.t() * 2, x, T.ones(4, 3)), T.autograd.grad(x.sum(), x), T.autograd.grad(x[:, :1].sum(), x)
        def call(f):
            return f(made('float32', (3, 4), 1).requires_grad_())
    """,
    "gradients asked for inside that are differentiable have eager's layout": """
        def target(x):
            return T.autograd.grad(x.t() ** 2, x, T.ones(4, 3), create_graph=True)
        def call(f):
            x = made('float32', (3, 4), 1).requires_grad_()
            (g,) = f(x)
            return g, T.autograd.grad(total(g), x)
    """,
    "hooks see row-major gradients": """
        def target(x):
            return (0 + x.T).exp(), x.sum(0)
        def call(f):
            x = made('float32', (3, 4), 1).requires_grad_()
            seen = []
            x.register_hook(lambda g: seen.append((g, g.stride())))
            total(f(x)).backward()
            return seen
    """,
    "a hook that changes the gradient in place changes it alone": """
        def target(x):
            return x + 1, x.T
        def call(f):
            x = made('float32', (3, 4), 1).requires_grad_()
            g = T.ones(3, 4)
            def double(h):
                h.mul_(2)
            x.register_hook(double)
            f(x)[0].backward(g)
            return x.grad, g
    """,
    "strides of one element's dimension in a sum over the other": """
        def target(w):
            return w.sum(0, keepdim=True), (w * 2)[:1].t(), w.amax(1, keepdim=True).t()
        def call(f):
            return f(made('float32', (2, 2), 1).t())
    """,
    "strides of results of operands that have strides nobody sees": """
        def target(x):
            return x * 2, (x + x.t()).mT, x.hypot(0.0).t()
        def call(f):
            return f(made('float32', (1, 1), 1).expand(1, 1)), f(made('float32', (1, 4), 1)[:, :1]), f(made('float32', (1, 1), 1))
    """,
    "a recording is not one of arguments with other strides, of which no element sees any": """
        def target(x):
            return (x // x).mT
        def call(f):
            return f(made('float32', (3, 5), 1).expand(1, 3, 5)), f(made('float32', (1, 3, 5), 1)), f(made('float32', (3, 5), 1)[None])
    """,
    "strides of empty results": """
        def target(x, y):
            return (x == 0)[:0], (x % 2)[:0].reshape(0), T.repeat_interleave(x, 0), y.isfinite().reshape(0), x[x > 100]
        def call(f):
            return f(made('float32', (3,), 1), made('float32', (0, 0), 1))
    """,
    "strides of indexing a transposed tensor of one row": """
        def target(w, i):
            return w[i], w.rot90(), w.permute(2, 1, 0) + 1
        def call(f):
            return f(made('float32', (1, 2, 4), 1).transpose(0, 2), T.tensor([3]))
    """,
    "the error for a saved operand that the program itself overwrote": """
        def target(a, w):
            c = a.mean(keepdim=True)
            v = c @ w
            c.erfc_()
            return v
        def call(f):
            w = made('float64', (1, 3), 1).requires_grad_()
            total(f(made('float64', (1, 1), 2), w)).backward()
    """,
    "the error for a saved argument that was overwritten after the call": """
        def target(a, w):
            return a * w
        def call(f):
            a, w = made('float64', (3,), 2), made('float64', (3,), 1).requires_grad_()
            r = f(a, w)
            a.add_(1)
            r.sum().backward()
    """,
    "a pass outside that meets a freed node and one whose saved value was changed, in either order": """
        w, z = T.tensor([0.472, -0.111, 0.249]).requires_grad_(), T.tensor(1.472).requires_grad_()
        def freed_first(a):
            dot = w @ a
            used = T.acosh(z)
            a[None] -= 1.0
            used.backward()
            return used, dot
        def changed_first(a):
            used = T.acosh(z)
            dot = w @ a
            a[None] -= 1.0
            used.backward()
            return used, dot
        def changed_between(a):
            used, b = T.acosh(z), z * a[0]
            dot = w @ a
            b.mul_(3.0)
            a[None] -= 1.0
            used.backward(retain_graph=True)
            (b * b).backward()
            return used, b, dot
        def target(a, i):
            return [freed_first, changed_first, changed_between][i](a)
        def call(f):
            errors = []
            for i in range(3):
                try:
                    sum(f(T.tensor([0.472, -0.111, 0.249]), i)).backward()
                except RuntimeError as error:
                    errors.append(str(error))
            return errors
    """,
    "numbers that are read one by one while their positions are overwritten in turns": """
        def target(a):
            seen = []
            for _ in a:
                for x in a:
                    seen.append(x.item())
                    x -= x
            return seen
        def call(f):
            a = T.tensor([3, 1, 2])
            return f(a), a
    """,
    "limits from a dictionary, and limits that are computed": """
        import numpy as np
        table = {'low': 0.0, 'high': 1.0}
        def target(a):
            found = [a.clamp_min(table['low']), a.clamp(max=table['high']), a.clamp(table['low'], int(np.random.default_rng().integers(1)))]
            return found, [repr(x.grad_fn) for x in found], [x.stride() for x in found]
        def call(f):
            return [f(T.tensor([[[0.472, -0.111], [0.249, 1.554]]]).requires_grad_().transpose(-1, 0)) for _ in range(2)]
    """,
    "rows of a transposed tensor that a mask selects": """
        x = made('float32', (2, 2, 4), 0).transpose(-1, 0)
        narrow = made('float32', (3, 1, 2), 1).transpose(-1, 1)
        def target(a):
            return x[a], x[a].sum(), x.transpose(1, 2)[a], narrow[a[1:]]
        def call(f):
            return [f(T.tensor(a)) for a in ([False, True, False, False], [True] * 4, [True, False, True, True])]
    """,
    "a warning in a module whose variables lead to themselves": """
        import sys, warnings
        variables = [vars(sys.modules[__name__])] if __name__ in sys.modules else [globals()]
        variables.append(variables)
        def target(a):
            warnings.warn(FutureWarning('told'))
            return a * 2
        def call(f):
            return f(T.ones(2))
    """,
    "a list that each call makes twice as long": """
        items = [1.0] * 30
        def target(x):
            for value in list(items):
                items.append(x)
            return x * len(items)
        def call(f):
            return f(T.tensor(0.472)), len(items)
    """,
    "gradients of a result whose graph was used up inside": """
        net = T.nn.Linear(3, 2)
        def target(a, b):
            v = (net(a) * b).mean()
            w = (a * 2).sum()
            v.backward()
            return v, w
        def call(f):
            seen = []
            for number in range(5):
                a, b, c = (made('float32', s, 1).requires_grad_() for s in ((4, 3), (4, 2), (2,)))
                h = a * 1
                v, w = f(h, b)
                try:
                    wanted = [[a], [b], [c], [h], [net.weight]][number]
                    seen.append(T.autograd.grad(v, wanted, allow_unused=True))
                except RuntimeError as error:
                    seen.append(str(error))
                try:
                    seen.append(T.autograd.grad(w, a))
                except RuntimeError as error:
                    seen.append(str(error))
            return seen
    """,
    "gradients of the mean of nothing after a backward pass inside": """
        net = T.nn.Linear(7, 0)
        def target(a):
            v = net(a).mean()
            T.optim.SGD(net.parameters()).zero_grad()
            v.backward()
            return v
        def call(f):
            a = made('float32', (7,), 1).requires_grad_()
            return T.autograd.grad(f(a), a, allow_unused=True)
    """,
    "functions of numbers alone": """
        def target(x, k):
            return [g(v) for g in (T.erf, T.exp, T.relu, T.abs, T.sqrt, T.sigmoid) for v in (x.numel(), k, 1, 1.5, True)]
        def call(f):
            return f(made('float32', (3,), 1), 0.5), f(made('float32', (3,), 1), 0.25), f(made('float32', (4,), 1), 2)
    """,
    "a float for a size": """
        k = 2
        def target(x):
            return T.zeros(2, k)
        def call(f):
            global k
            k = 2
            r = f(None)
            k = 0.5
            return r, f(None)
    """,
    "a number from outside for a tensor": """
        items = [2.0]
        def target():
            return T.diagflat(items[0])
        def call(f):
            return f()
    """,
    "a float for an index": """
        class Model:
            k = 1
        def target(x):
            return x[Model.k], x[..., Model.k]
        def call(f):
            Model.k = 1
            r = f(T.ones(3, 2))
            Model.k = 0.0
            try:
                return r, f(T.ones(3, 2))
            except IndexError as error:
                return r, str(error)
    """,
    "the largest of zeros of either sign": """
        def target(a):
            a[None] *= 0.0
            return a.max(), a.amin(0)
        def call(f):
            return f(T.tensor([0.472, -0.111, 0.249]))
    """,
    "products that overflow before they cancel": """
        def target(a, b):
            return a @ b, (a * b.t()).sum(1)
        def call(f):
            return f(T.tensor([[1.553, -1.0, -0.1]]), T.tensor([[3e38], [math.inf], [2.5]]))
    """,
    "products of transposed matrices that overflow": """
        def target(a):
            return a @ a
        def call(f):
            return f(made('float32', (4, 4), 0, 'special').transpose(1, 0))
    """,
    "a gradient that is a step of Python, for two sizes of something else": """
        k = T.tensor(0.472, requires_grad=True)
        def target(a, i):
            return k.take(i)
        def call(f):
            try:
                f(T.zeros(0, 0), T.tensor(0.5))
            except RuntimeError as error:
                f(T.zeros(0, 2), T.tensor(-1)).backward()
                return str(error), k.grad
    """,
    "erfc and lgamma where they are sensitive": """
        def target(a, b):
            return a.erfc(), b.lgamma(), T.logaddexp(a, -a)
        def call(f):
            b = T.tensor([-1.757, 0.99998, 2.00001, -2.457], dtype=T.float64)
            return f(T.tensor([8.91, 20.7, 0.5, -3.0], dtype=T.float64), b)
    """,
    "roundings of results with strides that no element sees": """
        def target(w):
            return w.sinh().sum(0, keepdim=True)
        def call(f):
            return f(made('float32', (2, 2), 1).t()), f(T.tensor(-1.078)), f(made('float32', (1, 1), 2).expand(1, 1))
    """,
    "a constant tuple is one object or another": """
        items = ['a']
        def target():
            return (items[0],), (1, (2.5, None))
        def call(f):
            items[:] = 'float32'
            return f()
    """,
    "an error in a call between others": """
        k = [T.tensor([0.472, -0.111])]
        def target(a):
            return k[0] ** a
        def call(f):
            try:
                f(T.tensor([]))
            except RuntimeError as error:
                k[0] = k[0] + 1
                return str(error), f(T.tensor(0.472))
    """,
}


# Those whose defect was in the numbers of elements.  The others are about what is recorded and what is done around nests, which "reference"
# does with the same source; and Numba takes a second for each.
OF_NUMBERS = {
    "a constant is converted where NumPy warns",
    "erfc and lgamma where they are sensitive",
    "gradients of the mean of nothing after a backward pass inside",
    "products of transposed matrices that overflow",
    "products that overflow before they cancel",
    "rounded results near the largest number",
    "roundings of results with strides that no element sees",
    "the largest of zeros of either sign",
    "the logarithm of the gamma function of -inf and of subnormal numbers",
}


def program(text: str) -> Program:
    lines = [line[8:] for line in text.strip("\n").split("\n")]
    return Program("\n".join([*lines, "calls = [call, call]", "def observe():", "    return None"]) + "\n", "finding")


def test_findings_about_numbers_are_findings() -> None:
    assert set(FINDINGS) >= OF_NUMBERS


@pytest.mark.parametrize("name", FINDINGS)
def test_a_program_that_was_found_does_what_eager_does(name: str) -> None:
    outcome = check(program(FINDINGS[name]), [way for way in WAYS.values() if way.backend != "numba" or name in OF_NUMBERS])
    assert outcome.difference is None, f"{outcome.way}: {outcome.difference}"
    assert not outcome.unstable or "zeros" in name or "overflow" in name


# -- what eager does in these programs
def test_gradients_asked_for_inside_a_recording_are_copies() -> None:
    x = T.ones(3, 4, requires_grad=True)
    y = T.ones(3, 4, requires_grad=True)

    @T.compile
    def both(x: T.Tensor, y: T.Tensor, g: T.Tensor) -> tuple[T.Tensor, ...]:
        return T.autograd.grad(x + y, [x, y], g)

    for _ in range(3):
        g = T.ones(3, 4)
        a, b = both(x, y, g)
        a.fill_(5)
        assert g.tolist() == b.tolist() == T.ones(3, 4).tolist()


def test_numbers_alone_have_the_dtype_that_a_tensor_of_them_has() -> None:
    for function in (T.erf, T.exp, T.sqrt):
        assert function(1).dtype is function(1.5).dtype is function(True).dtype is T.float32
    assert T.relu(2).dtype is T.int64
    assert T.add(1, 2).dtype is T.int64
    assert T.add(1, 2.5).dtype is T.float32


def test_the_largest_of_no_elements_is_a_runtime_error_and_along_an_empty_dimension_an_index_error() -> None:
    empty = T.zeros(0, 5)
    for function in (T.max, T.min, T.amax, T.amin, T.aminmax):
        with pytest.raises(RuntimeError, match="expected a tensor with elements"):
            function(empty)
    with pytest.raises(IndexError):
        empty.amax(0)
    assert tuple(empty.amax(1).shape) == (0,)
    assert T.zeros(0, 2).logsumexp(0).tolist() == [-np.inf, -np.inf]


HANGS = [
    [-np.inf, 2.241, 0.0, -0.0],
    [-4.896, 3e-40, 9e38, 1.461],
    [-2.754, -4.137, 3.0, 1.599],
]


@pytest.mark.parametrize("function", ["svd", "svdvals", "det"])
def test_singular_values_of_infinities_are_an_error_and_not_a_loop_without_end(function: str) -> None:
    x = T.tensor(HANGS, dtype=T.float64, requires_grad=True)
    with pytest.raises(T.linalg.LinAlgError, match="expected finite numbers"):
        if function == "det":
            T.linalg.det(x[:, :3]).backward()
        else:
            getattr(T.linalg, function)(x)


# -- what a difference is measured by
def samples(name: str) -> tuple[list[object], dict[str, object]]:
    for operands, attributes in REGISTRY[name].samples():  # type: ignore[misc]
        arrays = [x for x in operands if isinstance(x, np.ndarray)]
        if arrays and all(x.dtype.kind == "f" and x.size > 2 for x in arrays):
            return list(operands), dict(attributes)
    pytest.skip("it has no samples on floating-point tensors")


@pytest.mark.parametrize("name", [n for n in inexact() if getattr(REGISTRY[n], "reducer", None) not in ("max", "min")])
def test_eager_rounds_otherwise_wherever_a_primitive_may(name: str) -> None:
    operands, attributes = samples(name)
    op = REGISTRY[name]

    def evaluated() -> list[T.Tensor]:
        out = op(*[T.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x for x in operands], **attributes)
        return list(out) if op.multiple else [out]

    plain = evaluated()
    if not any(np.isfinite(t.numpy()).any() and t.numpy().any() for t in plain if t.dtype.is_floating_point):
        pytest.skip("all results of the sample are zeros")
    for seed in range(8):
        with rounding_noise(seed):
            if any((a.numpy() != b.numpy()).any() for a, b in zip(plain, evaluated(), strict=True)):
                return
    pytest.fail("eight runs have the same bits")


def test_errors_of_shapes_are_the_same_with_other_roundings() -> None:
    for seed in (None, 1):
        with pytest.raises(RuntimeError, match="cannot be broadcast together"):
            if seed is None:
                T.ones(2) ** T.ones(3)
            else:
                with rounding_noise(seed):
                    T.ones(2) ** T.ones(3)


def test_infinities_and_nan_are_told_apart() -> None:
    eager, other = np.array([-np.inf], np.float32), np.array([np.nan], np.float32)
    assert unexplained(eager, other, [eager.copy()]).all()
    assert not unexplained(eager, other, [eager.copy(), other.copy()]).any()


def test_nan_of_bfloat16_equals_nan_in_other_bits_and_nothing_else() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    eager = np.array([0x7FC0, 0x7FC0, 0x3F80], np.uint16).view(bfloat16)
    other = np.array([0xFFC0, 0x7F80, 0xBF80], np.uint16).view(bfloat16)
    assert unexplained(eager, other, []).tolist() == [False, True, True]


def test_numbers_of_any_length_are_facts() -> None:
    first, same, other = (facts(number=10**5000 + more).skeleton for more in (0, 0, 1))
    assert first == same != other


def test_the_sign_of_nan_is_anybodys_and_no_other() -> None:
    x = T.tensor([[np.nan, -np.nan, -1.0, 0.0]]).t()
    seen = set()
    for seed in range(16):
        with rounding_noise(seed):
            signs = x.signbit()
            assert T.ones(4, 1).copysign(x)[2:].tolist() == [[-1.0], [1.0]]
        assert signs.stride() == x.signbit().stride() and signs[2:].tolist() == [[True], [False]]
        seen.add(bool(signs[0]))
    assert seen == {True, False}


def test_more_runs_are_made_only_where_roundings_move_numbers() -> None:
    def logs(*values: float) -> list[Facts]:
        return [facts(False, outcome=np.array(values))]

    asked: list[int] = []

    def noisy(moved: dict[int, tuple[float, float]]) -> Callable[[int], list[Facts]]:
        def run(seed: int) -> list[Facts]:
            asked.append(seed)
            return logs(*moved.get(seed, (1.0, 1.0)))

        return run

    above = 1.0 + 2.0**-52
    assert compare(logs(1.0, 1.0), logs(1.0, above), noisy({}))[0] is not None and len(asked) == SAMPLES[-2]
    assert compare(logs(1.0, 1.0), logs(1.0, above), noisy({5: (above, 1.0), 99: (1.0, above)}))[0] is None
    assert max(asked) == SAMPLES[-1] - 1


def test_zeros_have_either_sign_only_where_both_were_compared() -> None:
    bound = inexact()["amax"]
    op = REGISTRY["amax"]
    assert op.kind is Kind.REDUCTION
    for values, expected in (([0.0, -0.0], 0.0), ([0.0, 0.0], None), ([-0.0], None)):
        assert bound(op, op.evaluate, np.float32(0), (np.array(values, np.float32),), {}) == expected


def test_a_number_that_no_tensor_holds_raises_what_eager_raises() -> None:
    compiled = T.compile(lambda n: T.tensor(n))
    for n in (3, 2**70, 4):
        found = []
        for call in (T.tensor, compiled):
            try:
                found.append(call(n).item())
            except Exception as error:
                found.append((type(error), str(error)))
        assert found[0] == found[1]
