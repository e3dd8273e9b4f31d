"""From a graph to the steps of a program: values in memory, fused nests, products, chunks.

values.py (producers and layouts), fuse.py (which nodes become one nest), schedule.py and elements.py (a group as a nest),
writer.py with special.py, draws.py and region_sums.py (nests of single nodes), memory.py (the plan of the arena),
unit.py and memory_order.py (steps without addresses, and their order), read_again.py and rematerialise.py (steps that run twice for the
sake of memory).  steps.py describes the result.

Must not know: machines and LLVM, Python objects, gradients.
Start reading: steps.py (the result), then lower.py (the order of the work), then fuse.py.
"""
