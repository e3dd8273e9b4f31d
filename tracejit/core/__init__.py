"""What every other folder may rely on: dtypes, sizes, `Op` and the registry of primitives, promotion, the door `bind`, locks and
threads.

The door is interpreter.py: every operation passes `bind(op, operands, attributes)`, and the innermost interpreter of the thread
evaluates it, records it, or builds a graph of it.  This folder imports no higher one.  Where it needs one, that folder installs a
function here, once, on import: tensor/eager.py the eager interpreter (`interpreter.set_base`); runtime/program.py what makes kernels
(`kernels.install`); llvm/products.py the policy for large products (`products.set_policy`); llvm/convolutions.py kernels of
convolutions (`convolutions.set_kernels`); llvm/thread_pool.py what sets the
number of threads (`thread_share.install`); cpython/exception_tables.py how
functions cover their entry (`interrupts.install`); compiled/ the function `compile` (`compiler.installed`).

Must not know: any particular primitive, tensors (but for attributes such as `dtype` and `ndim`), the tape, the compiler.
Start reading: interpreter.py (the door), op.py (what a primitive declares), promotion.py.
"""
