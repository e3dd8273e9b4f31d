"""Compiled functions: the programs of a recording, the paths of a function and the choice between them.

A *path* is a recording with its programs and its entry.  A call tries one entry first; an entry misses (a guard failed), or
leaves by an exit (a guard inside the program failed), with nothing changed in either case, or returns the result.  From a
miss or an exit a *bridge* leads to the entry that served the last such call.  What no path serves runs eagerly and is
recorded, if there is room and it pays.
* Programs of a recording: executable (forward and backward), placing, backward_call, eager_tape (the nodes eager mode would
  have made).
* Machine code: hot_entry (an entry as machine code); side_trace (machine code that goes on from an exit: it reuses the values that
  are whole in the arena of the program that exited, and computes residuals and results again).  promotion has both compiled.
* Sizes: symbolic_paths.  A recording with symbolic sizes serves all sizes for which its relations hold; its programs are made
  once for each region of sizes.
* Paths: recorded_path (one path and its states), path_table (those of a function, the states of a function, the slots that
  machine code reads), bridges (from an entry that did not serve a call to one that does).
* Policy: accounts (what paths gain and cost), tier_policy (when to record, run eagerly, rest, warn, or run in pieces),
  pieces (bodies of loops as functions of their own).
* Recording: recording_driver (from a call that no path serves to a path); diagnostics and options of a function.
* compile is what a user meets; shadow compares compiled calls with eager ones while a program runs.

Must not know: nn and optim, what a handler of capture does, how nests are made.
Start reading: path_table.py and recorded_path.py (the two state machines), recording_driver.py (from a call to a path),
executable.py (its programs), dispatch.py (how a call gets to a path).
"""
