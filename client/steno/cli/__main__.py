"""The entry point of `python -m steno.cli`."""

from steno._command import main

main()
