"""The command `python -m ipujax.tessellate script.py`: scripts that import `tessellate_ipu` run."""

import sys

from ipujax.standin import run_script
from ipujax.tessellate.install import install

if __name__ == "__main__":
    sys.exit(run_script(sys.argv[1:], "tessellate", "TessellateIPU", install))
