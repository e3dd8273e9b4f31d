"""Compiled functions: the programs of a recording, the paths of a function, and the choice between paths.

A *path* is a recording with its programs and its entry.  A call tries one entry first.  An entry returns the result, misses (a
guard before the program has failed), or leaves by an exit (a guard inside the program has failed); a miss or an exit has changed
nothing.  From there a *bridge* leads to the entry that served the last such call.  A call that no path serves runs eagerly and is
recorded, if there is room and it pays.

* Programs of a recording: executable (forward and backward), tape_edges (edges to inputs), backward_call, eager_tape (the tape
  nodes that eager mode would have created).
* Machine code: hot_entry (an entry as machine code), side_trace (machine code that goes on from an exit, with the values that the
  program has computed so far), promotion (has both compiled).
* Sizes: symbolic_paths.  A recording with symbolic sizes serves all sizes for which its relations hold; its programs are compiled
  once for each domain of sizes.
* Paths: recorded_path (one path and its states), path_table (the paths and the states of a function, the slots that machine code
  reads), bridges (from an entry that did not serve a call to one that does).
* Policy: accounts (what paths gain and cost), tier_policy (when to record, run eagerly, rest, warn, or run in pieces), pieces
  (compiles bodies of loops as functions of their own).
* Recording: recording_driver (records a call that no path serves), diagnostics and options of a function.
* User interface: compile.  shadow compares compiled calls with eager ones in a running program.

Must not know: nn and optim, what a handler of capture does, how nests are made.
Start reading: path_table.py and recorded_path.py (the two state machines), recording_driver.py (makes a path of a call),
executable.py (the programs of a path), dispatch.py (how a call gets to a path).
"""
