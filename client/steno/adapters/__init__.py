"""Session classes of other programs, backed by steno.

kimi      for kimi-cli: `Context(file_backend=path)`, its conversation; `WireFile(path)`, its
          events; `DenwaRenji(path)`, its D-Mail; `SimpleCompaction()`, a compaction as one rewrite
kosong    `StenoLinearStorage(path)`, a storage for kosong's LinearContext

An adapter imports its program only to make one of its objects, so steno installs without them.
"""
