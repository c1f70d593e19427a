"""What ipujax uses of lazy_loader, which has no annotations."""

from collections.abc import Callable
from typing import Any

def attach_stub(
    package_name: str, filename: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]: ...
