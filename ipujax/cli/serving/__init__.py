"""Reports in a browser: `library` finds them, `pages` shows them, `server` answers requests."""

from ipujax.cli.serving.library import Library as Library
from ipujax.cli.serving.server import Server as Server
