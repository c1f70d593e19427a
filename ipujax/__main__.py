"""`python -m ipujax` is the command `ipujax`."""

from ipujax.cli.main import main

raise SystemExit(main())
