"""The entry point of `python -m steno_cli`."""

from steno_cli.process import main

main()
