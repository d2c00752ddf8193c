"""Lets `python -m steno.cli` be the command."""

from steno._command import main

main()
