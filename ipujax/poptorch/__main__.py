"""The command `python -m ipujax.poptorch script.py`, with `import poptorch` finding ours."""

import sys

from ipujax.poptorch.install import install
from ipujax.standin import run_script

if __name__ == "__main__":
    sys.exit(run_script(sys.argv[1:], "poptorch", "PopTorch", install))
