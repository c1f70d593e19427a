"""The command `python -m ipujax.popart script.py`, with `import popart` finding ours."""

import sys

from ipujax.popart.install import install
from ipujax.standin import run_script

if __name__ == "__main__":
    sys.exit(run_script(sys.argv[1:], "popart", "PopART", install))
