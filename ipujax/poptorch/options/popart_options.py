"""The switches of PopART under PopTorch, `Options._Popart`, which public programs set as well."""

from __future__ import annotations

from typing import Any

from ipujax.poptorch.options.option_store import Freezable
from ipujax.poptorch.poptorch_checks import check


@check.guard
class PopartOptions(Freezable):
    """The switches of PopART, the original's compiler, by name.

    `switches.SWITCHES` tells what each one changes here. They are checked when a model or a data
    loader takes the options: unknown names, values of a wrong type and switches that ask for
    what is missing here raise an error then.

    Attributes:
      options: the switches that have been set, and two that always are.
    """

    options: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.options = {
            "instrumentWithHardwareCycleCounter": False,
            "rearrangeAnchorsOnHost": False,
        }

    def set(self, key: str, value: object) -> PopartOptions:
        """Sets one switch."""
        self.checkIsFrozen()
        self.options[check.require_text(key, "the name of a PopART option")] = value
        return self

    def setEngineOptions(self, engine_options: dict[str, str]) -> PopartOptions:
        """Sets Poplar's engine options, as `POPLAR_ENGINE_OPTIONS` does for all programs."""
        check.require_instance(engine_options, dict, "engine_options")
        return self.set("engineOptions", engine_options)

    def setPatterns(self, patterns: dict[str, bool], level: int = 2) -> PopartOptions:
        """Stores which rewriting patterns PopART applies; no effect: XLA has its own."""
        check.require_instance(patterns, dict, "patterns")
        check.require_integer(level, "the level of patterns", at_least=0)
        return self.set("patterns_level", level).set("patterns", patterns)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({values})"
