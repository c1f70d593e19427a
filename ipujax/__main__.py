"""`python -m ipujax` is the command `ipujax`."""

from ipujax.cli import main

raise SystemExit(main())
