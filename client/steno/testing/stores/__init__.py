"""The conformance suite of session stores: write ownership by real processes.

    pytest -p steno.testing --store mymodule:Driver

A driver (see `driver`) opens the store; the clauses then write through processes of their own,
kill them, tear files, fill the disk and compare what is loaded with what was acknowledged.

driver        what a driver offers: the interface that users implement
clauses       the list of the clauses
writers       clauses about several writers at once
accidents     clauses about kills, torn files and a full disk
rewrites      clauses about stale writers, retries, conditions and batches
durability    the clause about syncs, which strace observes
tracing       strace on the processes of a store
trial         one store under test: a folder, a seed, processes
process       one process with an open store, as its parent sees it
worker        that process itself; it needs the standard library alone
ledger        what was sent and acknowledged, against what was loaded
verdicts      kept, broken, not offered, not observed
files         the files of a store: copies and tails
limits        bounds of the suite
plugin        the options and reports of pytest
suite         the clauses as tests
steno_driver  the driver of steno's own sessions
"""
