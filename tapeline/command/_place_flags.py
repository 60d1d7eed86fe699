"""Flags of the engine and the devices on which a command runs a bundle."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from absl import flags

from lang_core import MeshShape
from tapeline.backends import Place, all_devices, device_aliases, engine_named, engine_names
from tapeline.bundle import TRUST, VERIFY, Verify
from tapeline.cli import user_path
from tapeline.command._choices import define_choice


class PlaceKeywords(TypedDict):
    """Engine and devices as keyword arguments of ``tapeline.load``."""

    engine: str
    device: str | None
    mesh: str | None
    checkpoint: Path | None
    verify: Verify
    trust_compiled: bool


@dataclass(frozen=True, slots=True)
class PlaceFlags:
    """Holders of the flags.

    Attributes:
        engine: ``--backend``.
        device: ``--device``.
        mesh: ``--mesh``.
        checkpoint: ``--checkpoint``.
        verify: ``--verify_files``.
        trust_compiled: ``--trust_compiled``.
    """

    engine: flags.FlagHolder[Any]
    device: flags.FlagHolder[Any]
    mesh: flags.FlagHolder[str | None]
    checkpoint: flags.FlagHolder[str | None]
    verify: flags.FlagHolder[Any]
    trust_compiled: flags.FlagHolder[bool]

    def keywords(self) -> PlaceKeywords:
        """Returns the flags as keyword arguments of ``tapeline.load``."""
        return {
            "engine": self.engine.value,
            "device": self.device.value,
            "mesh": self.mesh.value,
            "checkpoint": self._directory(),
            "verify": self.verify.value,
            "trust_compiled": bool(self.trust_compiled.value),
        }

    def place(self) -> Place:
        """Returns the engine and devices of the flags.

        Raises:
            InputError: the engine lacks the device, or does not support meshes.
            ConfigError: the mesh is malformed.
        """
        mesh = None if self.mesh.value is None else MeshShape.parse(self.mesh.value)
        return Place(
            self.engine.value,
            self.device.value,
            mesh,
            self._directory(),
            self.verify.value,
            bool(self.trust_compiled.value),
        )

    def _directory(self) -> Path | None:
        return None if self.checkpoint.value is None else user_path(self.checkpoint.value)


def define_place_flags(values: flags.FlagValues) -> PlaceFlags:
    """Defines the flags in a command's flags."""
    iree, *others = engine_names()
    further = "; ".join(f"{name}: {', '.join(engine_named(name).devices)}" for name in others)
    return PlaceFlags(
        flags.DEFINE_enum(
            "backend",
            "iree",
            list(engine_names()),
            "Backend that runs the bundle: iree runs the compiled module, jax compiles the portable module with XLA, "
            "eager computes with NumPy.",
            flag_values=values,
        ),
        define_choice(
            "device",
            None,
            all_devices(),
            f"Device. Of {iree}: {', '.join(engine_named(iree).devices)} (default: the first); {further}.",
            further=device_aliases(),
            flag_values=values,
        ),
        flags.DEFINE_string(
            "mesh",
            None,
            "Device mesh that the bundle is sharded over, such as tp=2,dp=2. Needs --backend=jax.",
            flag_values=values,
        ),
        flags.DEFINE_string(
            "checkpoint",
            None,
            "Directory of the weights, for bundles exported with --weights=none. Needs --backend=jax.",
            flag_values=values,
        ),
        flags.DEFINE_enum(
            "verify_files",
            VERIFY[0],
            list(VERIFY),
            "Verification of the weights against their hash: in the background if the file changed, before the start "
            "(full), by file size (sizes), or off. Other files are always verified, unless off.",
            flag_values=values,
        ),
        flags.DEFINE_bool(
            TRUST,
            False,
            "Run compiled modules (module.*.vmfb, native code) that were not compiled on this machine. By default, "
            "module.mlir is compiled again.",
            flag_values=values,
        ),
    )
