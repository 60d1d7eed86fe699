"""Packages that a part of Tapeline needs and ``pip install tapeline`` does not bring: the extras of its wheels.

Modules that import such a package at the top are loaded through ``load_extra`` alone; tests/layering lists them.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import Final

from lang_core._errors import ChoiceError, MissingPackageError, near_names

_JAX: Final = ("jax", "jaxlib", "run_jax")
_PLOTS: Final = ("matplotlib",)

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "jax": _JAX,
    "train": (*_JAX, "optax", "orbax", *_PLOTS),
    "audio": ("soundfile", "soxr"),
    "images": ("PIL",),
    "plots": _PLOTS,
}
"""Names of the packages that each extra of the wheel ``tapeline`` brings, as Python imports them."""


def has_extra(extra: str) -> bool:
    """Returns True if all packages of an extra are installed; imports none of them.

    Raises:
        ChoiceError: the extra does not exist.
    """
    return not _missing(extra)


def check_extra(extra: str, purpose: str) -> None:
    """Checks that the packages of an extra are installed; imports none of them.

    Args:
        extra: name of the extra, a key of ``EXTRAS``.
        purpose: the user of the packages, as the beginning of the error message.

    Raises:
        MissingPackageError: a package is not installed; says how to install it.
        ChoiceError: the extra does not exist.
    """
    missing = _missing(extra)
    if missing:
        raise MissingPackageError(
            f"{purpose} needs packages that are not installed ({', '.join(missing)}): pip install 'tapeline[{extra}]'"
        )


def load_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Imports a module that imports packages of an extra.

    Args:
        module: name of the module.
        extra: name of the extra, a key of ``EXTRAS``.
        purpose: the user of the packages, as the beginning of the error message.

    Raises:
        MissingPackageError: a package of the extra is not installed; says how to install it.
        ChoiceError: the extra does not exist.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        check_extra(extra, purpose)
        raise  # another module is missing: a fault of an installation, which the traceback names


def _packages(extra: str) -> tuple[str, ...]:
    if extra not in EXTRAS:
        raise ChoiceError(f"extra: expected one of {', '.join(EXTRAS)}; found {extra!r}{near_names(extra, EXTRAS)}")
    return EXTRAS[extra]


def _missing(extra: str) -> list[str]:
    return [package for package in _packages(extra) if importlib.util.find_spec(package) is None]
