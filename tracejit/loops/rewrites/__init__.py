"""Rewrites of nests, `nest -> nest`, a file each: what a nest does stays the same bit for bit, how it is run becomes fit for a
machine.

A rewrite decides by the statements alone and writes its decision into them; renderings carry out what they find and decide
nothing.  What a rewrite writes has one meaning in every rendering, so that loops/python.py runs rewritten nests too, and is
verified (loops/verify.py): profit is the rewrite's business, legality the verifier's.  Plain nests stay as the scheduler made
them until a rendering for vectors asks.

divide.py is apart: it makes several nests of one before any rendering is chosen, since where a nest is cut tells the order of
its sums.

Must not know: renderings; of the machine no more than loops/target.py says.
Start reading: pipeline.py, then vectorise.py.
"""
