"""Lets `import` find a package of ipujax under the original's name, for unchanged scripts."""

from .finder import stand_in_for as stand_in_for
from .popdist_and_horovod import install_popdist as install_popdist
from .scripts import run_script as run_script
from .standin_log import log_to_stderr as log_to_stderr
