"""A full-text index over all sessions, in the cache folder.

The sessions are the truth, and the index may be deleted at any time. It contains words and
positions, no text: each hit is read from its session before it is shown, so that no result shows a
record that is no longer there.

`query`     what a person typed, as an expression of FTS5; pure
`words`     the searchable words of a text; pure
`index`     the index in SQLite: records in, positions out
`folder`    the files of the index, and the lock of the process that fills it
`filling`   reads what is new in the sessions into the index
`prefilter` what can contain no match of a pattern, as its bytes show; pure
`matching`  the lines of a record in which something is found; pure
`hits`      reads the found records from the sessions, and marks the words in them
"""
