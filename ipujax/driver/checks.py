"""The checks of what programs are asked for, on their way to the device."""

from ipujax.checks.arguments import Checks
from ipujax.errors import ConfigError, ConfigTypeError

check = Checks(ConfigTypeError, ConfigError)
