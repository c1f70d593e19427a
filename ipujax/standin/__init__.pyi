"""Lets `import` find a package of ipujax under the original's name, for unchanged scripts."""

from .finder import stand_in_for as stand_in_for
from .scripts import run_script as run_script
from .sdk import install_libpvti as install_libpvti
from .sdk import install_popdist as install_popdist
from .standin_log import log_to_stderr as log_to_stderr
