"""An exported bundle, opened."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from autotune import is_recording_calls, record_lines
from compile_hlo.directions import Signature
from lang_core import InputError, TensorSpec, near_names
from run_iree import Device, Session, host_cpu, target_of_device
from run_iree.archive import read_archive_index
from run_iree.dump import Dumper
from tapeline.bundle._files import ARCHIVE, MARK, SCOPE, debug_executable_name, executable_name
from tapeline.bundle._kernel_config import KernelConfig


class Bundle:
    """A bundle's directory.

    Attributes:
        path: the directory.
        config: its kernel_config.json.
    """

    def __init__(self, path: Path) -> None:
        """Reads the description.

        Raises:
            InputError: the directory is no bundle, or is damaged.
        """
        self.path: Final = path
        self.config: Final = KernelConfig.read(path / MARK)

    def entry_point(self, name: str) -> Signature:
        """An entry point's description.

        Raises:
            InputError: there is none of that name.
        """
        known = [each.name for each in self.config.entry_points]
        if name not in known:
            raise InputError(
                f"{self.path} has no entry point {name!r}: it has {', '.join(known)}{near_names(name, known)}"
            )
        return self.config.entry_points[known.index(name)]

    def session(self, device: str, dumper: Dumper | None = None) -> Session:
        """Opens the bundle on a device. Close the session when done.

        With ``TAPELINE_OPS_RECORD=1`` the calls of kernels in the bundle are noted, to be tuned (docs/kernels.md).

        Args:
            device: its name.
            dumper: is given the tensors of every call (see ``dumping``); the session then runs the debug module, where
                there is one.

        Raises:
            InputError: the bundle was not compiled for the device, or for a CPU that is not this one.
            DeviceError: the device is not there, or a file is damaged.
        """
        target = target_of_device(device)
        debug = dumper is not None and self.config.debug is not None
        executable = self.path / (debug_executable_name if debug else executable_name)(target)
        self._check_files(executable.name, ARCHIVE)
        if not executable.is_file():
            compiled = ", ".join(self.config.targets) or "no target"
            raise InputError(
                f"device {device!r} runs modules of target {target}; {self.path} was compiled for {compiled}: export "
                f"it with --target={target}"
            )
        self._check_cpu(target)
        if is_recording_calls():
            record_lines(self.config.kernel_calls)
        archive = self.path / ARCHIVE
        if archive.is_file():
            self._check_archive(archive)
        return Session(
            executable,
            Device(device),
            parameters=archive if archive.is_file() else None,
            scope=SCOPE,
            signatures=[_guarding_all(point) if debug else point for point in self.config.entry_points],
            dumper=dumper,
        )

    def _check_files(self, *names: str) -> None:
        for name in names:
            if name in self.config.sha256 and not (self.path / name).is_file():
                raise InputError(f"{self.path} has lost {name}, which {MARK} lists: export the bundle again")

    def _check_archive(self, archive: Path) -> None:
        """Compares the sizes of the parameters: IREE would take the first bytes of one that is too large."""
        found = read_archive_index(archive)
        for name, fields in self.config.parameters.items():
            wanted = TensorSpec(tuple(fields["shape"]), fields["dtype"])
            record = found.get(name)
            if record is None or record.nbytes != wanted.nbytes:
                has = f"has {record.nbytes} bytes" if record else "is not there"
                raise InputError(
                    f"{archive}: parameter {name!r} {has}, the module wants {wanted!r} ({wanted.nbytes} bytes): the "
                    f"archive belongs to another bundle: export again"
                )

    def _check_cpu(self, target: str) -> None:
        cpu = self.config.targets.get(target, {}).get("cpu")
        if not cpu or cpu.get("target") != "host":
            return
        missing = sorted(set(cpu.get("features", ())) - set(host_cpu().features))
        if missing:
            raise InputError(
                f"{self.path}: module.{target}.vmfb was compiled for {cpu.get('name')}, and this CPU lacks "
                f"{', '.join(missing)}: export the bundle on this machine"
            )


def _guarding_all(signature: Signature) -> Signature:
    """Guards every tensor that is not donated.

    A debug module needs that: the directions are those of the plain module, which lacks what only tags use.
    """
    return replace(
        signature,
        arguments=tuple(
            replace(argument, guarded=argument.kind == "tensor" and not argument.donated)
            for argument in signature.arguments
        ),
    )
