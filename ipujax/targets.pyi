from .system.targets import IPU1 as IPU1
from .system.targets import IPU2 as IPU2
from .system.targets import IPU21 as IPU21
from .system.targets import Links as Links
from .system.targets import Target as Target
from .system.targets import named as named
from .system.targets import names as names
from .system.targets import target_of as target_of
