"""The argument checks of `ipu.compile` and of compiled programs."""

from ipujax.ground import Checks, ConfigError, ConfigTypeError

check = Checks(ConfigTypeError, ConfigError)
