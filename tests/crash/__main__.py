"""`python -m crash`: blows at a cluster under load; see `crash.run`."""

from crash.run import main

raise SystemExit(main())
