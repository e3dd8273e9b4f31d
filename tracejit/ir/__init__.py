"""The graph: frozen SSA over primitives, with what builds, prints, verifies, traces and interprets it.

Must not know: tensors, gradients, memory, machines, any particular primitive.
Start reading: graph.py, then printer.py (a printed graph is Python that runs), then interpreter.py (what a graph means).
"""
