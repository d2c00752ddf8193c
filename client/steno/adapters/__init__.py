"""Other programs' session classes, with steno behind them.

kimi      `Context(file_backend=path)`, the class that kimi-cli keeps its conversation in, and
          `WireFile(path)`, the one that it keeps its events in; `DenwaRenji(path)`, its D-Mail;
          `SimpleCompaction()`, whose result becomes one rewrite
kosong    `StenoLinearStorage(path)`, a storage for kosong's LinearContext

They import the packages that they stand in for only when they have to make one of their objects, so
that none of them is needed to install steno.
"""
