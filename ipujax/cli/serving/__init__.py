"""Serves reports to browsers: `library` finds, `pages` renders, `server` answers requests."""

from ipujax.cli.serving.report_library import Library as Library
from ipujax.cli.serving.server import Server as Server
