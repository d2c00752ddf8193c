"""`python -m stenod`: the same as the `stenod` command."""

import sys

from stenod.cli import main

sys.exit(main())
