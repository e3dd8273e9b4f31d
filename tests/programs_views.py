"""Views of all kinds, written to: of arguments, of what the program keeps, of its own tensors.  See capture_programs.py."""

from __future__ import annotations

from registered_programs import Box, program, x

import tracejit as T


def base():
    return T.arange(1.0, 13.0).reshape(3, 4)


VIEWS = {
    "row": lambda t: t[1],
    "column": lambda t: t[:, 1],
    "rows": lambda t: t[1:],
    "steps": lambda t: t[::2, 1::2],
    "transposed": lambda t: t.T,
    "permuted": lambda t: t.permute(1, 0),
    "reshaped": lambda t: t.reshape(2, 6),
    "viewed": lambda t: t.view(4, 3),
    "flattened": lambda t: t.flatten()[2:5],
    "unsqueezed": lambda t: t[None, 0],
    "squeezed": lambda t: t[:1].squeeze(0),
    "diagonal": lambda t: t.diagonal(),
    "narrowed": lambda t: t.narrow(1, 1, 2),
    "selected": lambda t: t.select(0, 2),
    "chunk": lambda t: t.chunk(2, 1)[1],
    "split": lambda t: t.split(2)[0],
    "unbound": lambda t: t.unbind(1)[3],
    "detached": lambda t: t.detach()[0],
    "moved": lambda t: t.movedim(0, 1)[2],
    "swapped": lambda t: t.swapaxes(0, 1)[:2],
    "unflattened": lambda t: t.unflatten(1, (2, 2))[:, 1],
    "element": lambda t: t[1, 2],
    "view_of_a_view": lambda t: t.T[1:][:, 0],
    "expanded": lambda t: t[:, :1],
    "itself": lambda t: t,
}
WRITES = {
    "in_place": lambda v, a: v.add_(a.sum()),
    "assigned": lambda v, a: v.copy_(v * 2 + a.sum()),
    "filled": lambda v, a: v.fill_(3.0),
}


def written(view, write, position):
    def maker():
        s = Box(t=base(), u=None)

        def on_argument(a, t):
            v = view(t)
            before = t.sum()
            write(v, a)
            return before, t.sum(), v * 1, view(t).sum(), t[0] * a.sum()

        def on_state(a, t):
            v = view(s.t)
            before = s.t.sum()
            write(v, a)
            s.u = v
            return before, s.t.sum(), v * 1

        def on_local(a, t):
            w = t * 1
            v = view(w)
            write(v, a)
            return w, v, v.sum() + w.sum()

        fn = {"argument": on_argument, "state": on_state, "local": on_local}[position]

        def go(f, t):
            r = f(x(1, 2), t)
            if position == "state":
                s.u.zero_()
            return r, t

        def fresh_state(f):
            s.t = base()
            return go(f, base())

        return (
            fn,
            [fresh_state, lambda f: go(f, base()), lambda f: go(f, T.arange(1.0, 13.0).reshape(4, 3).T), fresh_state],
            lambda: s.t,
        )

    return maker


for _v in VIEWS:
    for _w in WRITES:
        if _w != "in_place" and _v not in ("row", "steps", "transposed", "diagonal", "itself"):
            continue
        for _p in ("argument", "state", "local"):
            m = written(VIEWS[_v], WRITES[_w], _p)
            m.__name__ = f"view_{_v}_{_w}_on_{_p}"
            program()(m)
