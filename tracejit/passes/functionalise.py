"""Raw graph with views and writes -> pure graph whose effects on inputs are `Graph.writes`.

Each value of a raw graph looks at a *storage*: that of its root, through a chain of views.  A write to a view makes a new
version of its root, computed by the inverses of the views (`slice_scatter` for `slice` ...); a later read of any other view of that root is
regenerated from the newest version.  Values whose storage is never written stay as they are, with their ids.

Gradients.  The output of a `write` is in `requires_grad` if and only if the write was differentiable (grad mode on, and target or
value requires grad).  A write that was not, of a value that requires grad, goes through `detach`; onto a target that requires grad, through
`replace_data`, because such a write changes contents while gradients still flow to where they flowed before.  A view of a tensor that
requires grad is looked at again after every write, so its position on the tape is where eager mode has it.  A differentiable write
through a view of all elements goes through `overwrite`: what was there before gets a gradient, of zeros, as it does outside of a
smaller view.

Eager mode refuses to go backward through a node whose saved values were overwritten; such nodes are marked in `Graph.stale`.

Invariants: program order is kept; the new version of a storage is never the id of a value that someone else can see (an input,
an output, another tensor), because two tensors with equal contents are still two tensors to whoever mutates one later.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import REGISTRY, Kind, Op
from tracejit.ir.builder import GraphBuilder, next_id, rebuild, substitute, uses
from tracejit.ir.graph import Graph, Node, Operand

__all__ = ["functionalise"]


def functionalise(graph: Graph) -> Graph:
    """The pure graph.  No input that is written shares memory with another one.

    Raises RuntimeError for a write to an expanded view, whose elements share memory."""
    if all(node.op.kind is not Kind.WRITE for node in graph.nodes):
        return graph
    return _Functionaliser(graph).run()


@dataclass(slots=True)
class _View:
    """How a value looks at its base.  `operands` are those after the first, as they were when the view was made."""

    base: int
    op: Op
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, object], ...]
    line: str


class _Functionaliser:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = builder = GraphBuilder(next_id(graph))
        builder.avals.update(graph.avals)
        builder.requires_grad.update(graph.requires_grad)
        self.uses = uses(graph)
        self.same_tensor: dict[int, int] = {}  # output of a write -> the tensor it wrote to
        self.views: dict[int, _View] = {}
        self.root: dict[int, int] = {}  # only values whose storage is written
        self.current: dict[int, int] = {}  # raw value -> value that holds its contents ...
        self.seen: dict[int, int] = {}  # ... as of this version of its root
        self.version: dict[int, int] = {}
        self.taped: list[tuple[int, int, int]] = []  # (output of a node, root of what its vjp saved, version of that)
        self.saved_results: set[int] = set()  # of nodes whose vjp reads them
        self.line = ""
        self.not_new = {*graph.inputs, *graph.constants}  # what no node made memory for
        self._find_roots()

    def _find_roots(self) -> None:
        root: dict[int, int] = {}
        written: set[int] = set()
        for node in self.graph.nodes:
            kind = node.op.kind
            if kind is Kind.VIEW or kind is Kind.WRITE:
                base = node.operands[0]
                assert type(base) is int
                root[node.outputs[0]] = base = root.get(base, base)
                if kind is Kind.WRITE:
                    written.add(base)
        self.not_new.update(root)
        self.root = {v: r for v, r in root.items() if r in written}
        self.root.update((r, r) for r in written)
        self.version = dict.fromkeys(written, 0)

    def run(self) -> Graph:
        graph, builder, in_written = self.graph, self.builder, self.root.keys()
        for node in graph.nodes:
            self.line = node.line
            if node.op.kind is Kind.WRITE:
                self._write_node(node)
                continue
            emitted = node
            if not in_written.isdisjoint(node.operands):
                emitted = substitute(node, {x: self._read(x) for x in node.operands if type(x) is int and x in in_written})
            builder.nodes.append(emitted)
            if node.op.kind is Kind.VIEW:
                if node.outputs[0] in self.root:
                    self._remember_view(node, emitted)
            elif not graph.requires_grad.isdisjoint(node.outputs):
                self._tape(node, emitted)
        outputs = tuple(self._read(x) if type(x) is int else x for x in graph.outputs)
        writes = tuple((v, self.current[v]) for v in graph.inputs if self.version.get(v, 0))
        return rebuild(
            graph,
            builder.nodes,
            avals=builder.avals,
            requires_grad=builder.requires_grad,
            stale=(v for v, root, version in self.taped if self.version[root] != version),
            outputs=outputs,
            writes=(*graph.writes, *writes),
        )

    def _tape(self, node: Node, emitted: Node) -> None:
        """Note which contents eager mode saves for the backward pass of `node`."""
        marks = self.builder.requires_grad
        inputs, outputs = node.op.saved_for(tuple([type(x) is int and x in marks for x in emitted.operands]))
        results = [node.outputs[i] for i in outputs]
        self.saved_results.update(results)
        for x in (*[node.operands[i] for i in inputs], *results):
            root = self.root.get(x) if type(x) is int else None
            if root is not None:
                self.taped.append((node.outputs[0], root, self.version[root]))

    def _remember_view(self, raw: Node, emitted: Node) -> None:
        base, (out,) = raw.operands[0], raw.outputs
        assert type(base) is int
        self.views[out] = _View(self._tensor(base), raw.op, emitted.operands[1:], raw.attributes, raw.line)
        self.current[out], self.seen[out] = out, self.version[self.root[out]]

    def _tensor(self, v: int) -> int:
        return self.same_tensor.get(v, v)

    def _read(self, v: int) -> int:
        """The value that holds the contents of raw value `v` now."""
        v = self._tensor(v)
        root = self.root.get(v)
        if root is None or v == root:
            return self.current.get(v, v)
        if self.seen[v] != self.version[root]:
            self.current[v] = self._look_again(v, self.views[v])
            self.seen[v] = self.version[root]
        return self.current[v]

    def _look_again(self, v: int, view: _View) -> int:
        """The view `v` of what its base holds now.  As in eager mode, gradients flow through it as through its base."""
        marks = self.builder.requires_grad
        base = self._read(view.base)
        marked = base in marks and view.op.is_differentiable
        contents = self._emit(view.op, (base, *view.operands), view.attributes, marked, view.line)
        previous = self.current.get(v)
        if not view.op.is_differentiable and previous in marks:  # written to before: it has a position of its own on the tape
            return self._emit("replace_data", (previous, contents), (), True)
        return contents

    def _read_differentiably(self, v: int) -> int:
        """Like `_read`, but gradients flow to the root even where a view on the way was made under no_grad."""
        v = self._tensor(v)
        contents = self._read(v)
        view = self.views.get(v)
        if view is None or not view.op.is_differentiable or contents in self.builder.requires_grad:
            return contents
        base = self._read_differentiably(view.base)
        if base not in self.builder.requires_grad:
            return contents
        return self._emit(view.op, (base, *view.operands), view.attributes, True, view.line)

    def _emit(
        self,
        op: Op | str,
        operands: tuple[Operand, ...],
        attributes: tuple[tuple[str, object], ...],
        marked: bool,
        line: str | None = None,
    ) -> int:
        op = REGISTRY[op] if isinstance(op, str) else op
        (out,) = self.builder.add(op, operands, dict(attributes), self.line if line is None else line)
        if marked:
            self.builder.requires_grad.add(out)
        return out

    def _write_node(self, node: Node) -> None:
        raw_target, value = node.operands
        assert type(raw_target) is int
        target, (out,) = self._tensor(raw_target), node.outputs
        differentiable = out in self.graph.requires_grad
        previous = self._read(target)
        contents = self._fresh_contents(value, self.builder.avals[target], differentiable)
        self.same_tensor[out] = target
        self._store(target, previous, contents, differentiable)

    def _fresh_contents(self, value: Operand, aval: Aval | ScalarAval, differentiable: bool) -> int:
        """`value` as a tensor of `aval` that nobody else can see."""
        assert isinstance(aval, Aval)
        if type(value) is not int or isinstance(self.builder.avals[value], ScalarAval):
            contents = self._emit("full", (value,), (("dtype", aval.dtype), ("shape", aval.shape)), False)
            return self._emit("clone", (contents,), (), True) if differentiable else contents
        contents = self._read(value)
        marked = contents in self.builder.requires_grad
        if marked and not differentiable:
            contents, marked = self._emit("detach", (contents,), (), False), False
        if self.builder.avals[contents] != aval:
            contents = self._emit("expand", (contents,), (("shape", aval.shape),), marked)
        temporary = contents == value and self.uses[value] == 1 and value not in self.not_new and value not in self.root
        if (
            temporary and marked == differentiable and value not in self.saved_results
        ):  # else the target must not seem to be saved
            return contents
        return self._emit("clone", (contents,), (), differentiable)

    def _store(self, target: int, previous: int, contents: int, differentiable: bool) -> None:
        """Make `contents` what the tensor `target` holds in the place of `previous`: a new version of its root."""
        marks, root, view = self.builder.requires_grad, self.root[target], self.views.get(target)
        if (view is None or not view.op.is_differentiable) and not differentiable and previous in marks:
            contents = self._emit("replace_data", (previous, contents), (), True)
        if view is None:
            self.version[root] += 1
        elif not view.op.is_differentiable:  # the detached tensor has a position of its own on the tape: only contents are shared
            plain = self._emit("detach", (contents,), (), False) if contents in marks else contents
            self._store(view.base, self._read(view.base), plain, False)
            self.seen[target] = self.version[root]
        else:
            base = self._read_differentiably(view.base) if differentiable else self._read(view.base)
            self._store(view.base, base, self._into_base(view, base, contents, differentiable), differentiable)
            if self._read(view.base) in marks:
                return  # as in eager mode, it is looked at again, and its position on the tape is a new one
            self.seen[target] = self.version[root]
        self.current[target] = contents

    def _into_base(self, view: _View, base: int, contents: int, differentiable: bool) -> int:
        """The contents of the base of `view` when the view holds `contents`."""
        marks = self.builder.requires_grad
        op, aval = view.op, self.builder.avals[base]
        assert isinstance(aval, Aval)
        if op.scatter is not None:
            marked = differentiable and (contents in marks or base in marks)
            return self._emit(op.scatter, (base, contents, *view.operands), view.attributes, marked)
        back = op.undone_for(aval.shape, dict(view.attributes))
        if back is None:
            raise RuntimeError(
                f"functionalise: {view.line or 'a write'} writes to a view made by {op.name}(), whose elements share memory; "
                "clone() it before writing"
            )
        marked = differentiable and contents in marks
        contents = self._emit(op, (contents,), tuple(back.items()), marked)
        return self._emit("overwrite", (base, contents), (), True) if marked and base in marks else contents
