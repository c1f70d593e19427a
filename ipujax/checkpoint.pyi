from .checkpoints.save_and_restore import latest_step as latest_step
from .checkpoints.save_and_restore import restore as restore
from .checkpoints.save_and_restore import save as save
