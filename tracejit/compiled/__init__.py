"""Compiled functions: the programs of a recording, the paths of a function and the choice between them.

A *path* is a recording with its programs and its entry.  A call tries the entry in front; one that misses, or leaves by an
exit, has changed nothing, and hands over to the path that went on from there last time (its *bridge*).  What no path serves
runs eagerly and is recorded, if there is room and it pays.  An entry that has served enough calls becomes machine code.
* Programs of a recording: executable (forward and backward), placing, backward_call, eager_tape (the nodes eager mode would
  have made).
* Machine code: hot_entry; side_trace goes on from an exit with what is in memory there.  Of the program that left it takes
  values that lie whole in the arena; residuals and results it computes again.
* Sizes: symbolic_paths.  A symbolic recording is compared with what other sizes really gave until it is trusted; a size that
  does not fit has a program of its own, and after several of those the region of sizes is used no more.
* Choice: dispatch, recorded_path, settling (when trying does not pay), pieces (bodies of loops as functions of their own).
* shadow compares compiled calls with eager ones while a program runs.

Must not know: nn and optim, what a handler of capture does, how nests are made.
Start reading: recorded_path.py (one path), executable.py (its programs), dispatch.py (from a call to a path).
"""
