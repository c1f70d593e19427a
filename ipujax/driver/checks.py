"""The argument checks of `ipu.compile` and of compiled programs."""

from ipujax.checks.arguments import Checks
from ipujax.errors import ConfigError, ConfigTypeError

check = Checks(ConfigTypeError, ConfigError)
