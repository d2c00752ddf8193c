"""Lets `python -m steno.cli` be the command."""

import sys

from steno.cli.entry import main

sys.exit(main())
