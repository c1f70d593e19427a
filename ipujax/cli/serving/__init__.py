"""Serves reports to browsers: `library` finds, `pages` renders, `server` answers requests."""

from ipujax.cli.serving.library import Library as Library
from ipujax.cli.serving.server import Server as Server
