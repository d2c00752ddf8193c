"""A consistent copy of a running root, which stops nobody.

`limits`, `ends` (where whole batches and settled timelines end), `files` (one file, atomically),
`snapshot` (the files of one session at one instant), `mirror` (the copy of a root).

The copy is a plain root. Each file in it is written aside, synced and renamed, and the files of a
session are replaced in the order of the daemon's own rewrites: a copy that is interrupted anywhere
is one that the daemon opens as after a crash.
"""
