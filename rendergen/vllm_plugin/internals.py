"""Which of vLLM's internals the plugin uses, and that they are there.

vLLM promises none of them: they are of 0.32.0, and may move or change in any other version. One that is missing is
found at start-up and named, rather than by the first request.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module

VLLM_VERSION = "0.32.0"
"""The version that this plugin was written and tested for."""


class VllmInternalsError(RuntimeError):
    """This vLLM lacks something the plugin stands on."""


@dataclass(frozen=True, slots=True)
class Need:
    """Something of vLLM's that is used.

    Attributes:
        module: where it is imported from.
        name: a name in there, dotted for what a class has.
        parameters: parameters it must take, for what is called or overridden.
        fields: attributes its instances must have, for pydantic models and dataclasses.
    """

    module: str
    name: str
    parameters: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """What of it is not there, in a few words; None if all is."""
        try:
            found: object = import_module(self.module)
        except ImportError as error:
            return f"{self.module} ({error})"
        for part in self.name.split("."):
            if not hasattr(found, part):
                return f"{self.module}.{self.name}"
            found = getattr(found, part)
        if self.parameters:
            has = inspect.signature(found).parameters  # type: ignore[arg-type]
            for parameter in self.parameters:
                if parameter not in has:
                    return f"{self.module}.{self.name}({parameter})"
        for field in self.fields:
            if field not in _fields(found):
                return f"{self.module}.{self.name}.{field}"
        return None


def _fields(found: object) -> set[str]:
    known: set[str] = set()
    for kind in getattr(found, "__mro__", (found,)):
        known.update(getattr(kind, "__annotations__", ()))
    for name in ("model_fields", "__dataclass_fields__", "__struct_fields__"):
        known.update(getattr(found, name, ()))
    return known


def check(needs: tuple[Need, ...]) -> None:
    """Raises VllmInternalsError, one line, if anything is missing."""
    missing = [what for need in needs if (what := need.missing()) is not None]
    if missing:
        from vllm import __version__

        raise VllmInternalsError(
            f"rendergen's plugin is written for vLLM {VLLM_VERSION} and does not fit vLLM {__version__}: "
            f"missing {', '.join(missing)}"
        )
