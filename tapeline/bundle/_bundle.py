"""Bundle that is open for reading and running."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from autotune import is_recording_calls, record_lines
from compile_hlo import traced_name
from compile_hlo.directions import Signature
from compile_hlo.emit import portable_text
from lang_core import DescriptionError, InputError, TensorSpec, WeightSource, checked_choices, near_names
from run_iree import Device, Session, host_cpu, target_of_device
from run_iree.archive import ArchiveWeights, read_archive_index
from runtime.dump import CallDumper, Dumper
from tapeline.bundle._checkpoint import CheckpointWeights, checkpoint_of
from tapeline.bundle._checks import BundleChecks
from tapeline.bundle._companions import SecondModule, tolerance_of
from tapeline.bundle._compiled import runnable
from tapeline.bundle._description import check_kernels
from tapeline.bundle._files import (
    ARCHIVE,
    ARTIFACT,
    DEBUG_MODULE,
    MARK,
    MODULE,
    SCOPE,
    debug_executable_name,
    executable_name,
)
from tapeline.bundle._kernel_config import KernelConfig

FORMER_NAMES: Final = {"score": "verify", "score_row": "verify_row", "score_tokens": "verify_tokens"}
"""Names in descriptions of earlier versions, with the present ones."""

_RENAMED: Final = FORMER_NAMES | {new: old for old, new in FORMER_NAMES.items()}


class Bundle:
    """Directory of an exported bundle.

    Attributes:
        path: path of the directory.
        config: contents of its kernel_config.json.
        checks: comparison of its files with their hashes.
    """

    def __init__(self, path: Path) -> None:
        """Reads the description.

        Raises:
            InputError: the directory is not a bundle, or is damaged.
        """
        self.path: Final = path
        self.config: Final = KernelConfig.read(path / MARK)
        self.checks: Final = BundleChecks(path, self.config.sha256)

    def known_name(self, name: str) -> str | None:
        """Returns the name that an entry point has in this bundle; None if the bundle lacks the entry point.

        ``verify`` and ``verify_row`` are ``score`` and ``score_row`` in bundles of earlier versions.
        """
        known = [point.name for point in self.config.entry_points]
        return next((one for one in (name, _RENAMED.get(name)) if one in known), None)

    def entry_point(self, name: str) -> Signature:
        """Returns the signature of an entry point.

        Raises:
            InputError: the entry point is not found.
        """
        known = [point.name for point in self.config.entry_points]
        name = self.known_name(name) or name
        if name not in known:
            raise InputError(
                f"{self.path} has no entry point {name!r}; available: {', '.join(known)}{near_names(name, known)}"
            )
        return self.config.entry_points[known.index(name)]

    @checked_choices
    def session(self, device: str, dumper: Dumper | None = None, *, trust_compiled: bool = False) -> Session:
        """Opens the bundle on a device; the caller closes the session.

        A compiled module that this user did not compile is compiled again, as it is native code.

        With ``TAPELINE_OPS_RECORD=1`` the bundle's calls of kernels are recorded, to be tuned (docs/kernels.md).

        Args:
            device: name of the device.
            dumper: receiver of the tensors of every call (see ``dumping``); the session then runs the debug module, if
                the bundle has one.
            trust_compiled: True runs the compiled module as it is.

        Raises:
            DescriptionError: kernel_config.json and the module contradict one another.
            InputError: the bundle was not compiled for the device, or for another CPU; or its module was compiled
                elsewhere, and cannot be compiled here.
            DeviceError: the device is not available, or a file is damaged.
        """
        target = target_of_device(device)
        debug = dumper is not None and self.config.debug is not None
        executable = self.path / (debug_executable_name if debug else executable_name)(target)
        self._check_files(executable.name, ARCHIVE)
        if not executable.is_file():
            compiled = ", ".join(self.config.targets) or "no target"
            raise InputError(
                f"device {device!r} runs modules of target {target}; {self.path} was compiled for {compiled}: export "
                f"it with target={target}"
            )
        self._check_module(executable, self.path / executable_name(target))
        if is_recording_calls():
            record_lines(self.config.kernel_calls)
        archive = self.path / ARCHIVE
        if archive.is_file():
            self._check_archive(archive)
        with contextlib.ExitStack() as stack:
            opened = Device(device)
            companions: list[SecondModule] = []
            if dumper is not None and debug:
                companions = self._companions(opened, dumper, trust_compiled)
                for companion in companions:
                    stack.callback(companion.close)
            session = stack.enter_context(self._open(executable, opened, trust_compiled, dumper, companions))
            self._check_described(session, executable)
            stack.pop_all()
            return session

    def artifact(self) -> Path:
        """Returns the path of the portable module, which engines other than IREE compile.

        Raises:
            DescriptionError: it is not the one that kernel_config.json describes.
            InputError: the bundle has none.
        """
        self._check_files(ARTIFACT)
        path = self.path / ARTIFACT
        if not path.is_file():
            raise InputError(
                f"{self.path} has no {ARTIFACT}: JAX was not installed where it was exported: install it "
                f"(pip install 'tapeline[jax]'), and export the bundle again"
            )
        self._check_module(path)
        return path

    def traced_text(self) -> str:
        """Returns the text of the debug module in StableHLO alone but for its traces, with all weights as arguments.

        Raises:
            DescriptionError: the debug module is not the one that kernel_config.json describes.
            InputError: the bundle has none, or its file is missing.
        """
        path = self.path / DEBUG_MODULE
        self._check_files(DEBUG_MODULE)
        if self.config.debug is None:
            raise InputError(f"{self.path} has no debug module: export with dump_tags='*' (or the names of some)")
        self._check_module(path)
        parameters = {
            name: TensorSpec(tuple(fields["shape"]), fields["dtype"]) for name, fields in self.config.parameters.items()
        }
        points = [point.name for point in self.config.entry_points]
        points += [traced_name(name) for name in points]
        return "".join(portable_text(path, parameters, dict.fromkeys(points, parameters)))

    def weights(self, checkpoint: Path | None = None) -> WeightSource | None:
        """Opens the weights, which are mapped and not read; None if the module takes none.

        Args:
            checkpoint: directory of the model's safetensors, for a bundle that was exported with weights=none; what it
                finds by itself if None: ``checkpoint`` in its directory, or the directory that it lies in.

        Raises:
            InputError: the archive is missing or damaged, or belongs to another bundle; or so the checkpoint.
        """
        if not self.config.parameters:
            return None
        archive = self.path / ARCHIVE
        self._check_files(ARCHIVE)
        if archive.is_file() and checkpoint is None:
            self._check_archive(archive)
            return ArchiveWeights(archive)
        directory = checkpoint or checkpoint_of(self.path)
        if directory is None:
            raise InputError(
                f"{self.path} has no {ARCHIVE}, and its module takes weights: export with weights=external, or give "
                f"the model's directory as `checkpoint`"
            )
        return CheckpointWeights(directory, self.path, self.config.parameters, self.config.model)

    def _open(
        self,
        executable: Path,
        device: Device,
        trust: bool,
        dumper: CallDumper | None = None,
        companions: Sequence[SecondModule] = (),
        *,
        traced: bool = False,
    ) -> Session:
        archive, debug = self.path / ARCHIVE, dumper is not None and self.config.debug is not None
        points = () if traced else self.config.entry_points
        target = target_of_device(device.name)
        is_debug = executable.name == debug_executable_name(target)
        text = self.path / (DEBUG_MODULE if is_debug else MODULE)
        described = self.config.targets.get(target, {})
        with runnable(executable, text, target, described, trust=trust) as (compiled, is_own):
            if is_own:
                self._check_cpu(target)
            guard = self.checks.guard()
            session = Session(
                compiled,
                device,
                parameters=archive if archive.is_file() else None,
                scope=SCOPE,
                signatures=[_guarding_all(point) if debug else point for point in points],
                dumper=dumper,
                companions=companions,
                guard=guard,
            )
        with contextlib.ExitStack() as stack:
            stack.callback(session.close)
            if guard is not None:
                guard.check_mapped()
            stack.pop_all()
        return session

    def _companions(self, device: Device, dumper: Dumper, trust: bool) -> list[SecondModule]:
        """Opens the modules beside the debug module: the module itself, and the functions with traces of kernels."""
        target = target_of_device(device.name)
        rows, tolerance = dumper.writer.agreement, tolerance_of(self.config.model)
        plain, debug = executable_name(target), debug_executable_name(target)
        self._check_files(plain)
        companions = [SecondModule(plain, self._open(self.path / plain, device, trust), rows, tolerance)]
        if any(dumper.sites.values()):
            session = self._open(self.path / debug, device, trust, dumper.kernels(), traced=True)
            companions.append(SecondModule(debug, session, rows, tolerance, function=traced_name, always=True))
        return companions

    def _check_described(self, session: Session, executable: Path) -> None:
        known = {point.name for point in self.config.entry_points}
        undescribed = sorted({*session.entry_points} - known - {traced_name(name) for name in known})
        if undescribed:
            raise DescriptionError(
                f"{self.path / MARK}: entry points do not list {', '.join(undescribed)}, which {executable.name} has: "
                f"export the bundle again"
            )

    def _check_module(self, *executables: Path) -> None:
        """Compares the module's files with their hashes, and its private functions with the description."""
        module = self.path / MODULE
        for path in {*executables, module}:
            if path.is_file():
                self.checks.check_module(path)
        if not module.is_file():
            return
        try:
            check_kernels(module, self.config.kernels, helpers=self.config.schema > 1)
        except DescriptionError as error:
            raise DescriptionError(f"{self.path / MARK}: {error}: export the bundle again") from None

    def _check_files(self, *names: str) -> None:
        for name in names:
            if name in self.config.sha256 and not (self.path / name).is_file():
                raise InputError(f"{self.path} has lost {name}, which {MARK} lists: export the bundle again")

    def _check_archive(self, archive: Path) -> None:
        """Compares the sizes of parameters: IREE would use the first bytes of one that is too large."""
        records = read_archive_index(archive)
        for name, fields in self.config.parameters.items():
            wanted = TensorSpec(tuple(fields["shape"]), fields["dtype"])
            record = records.get(name)
            if record is None or record.nbytes != wanted.nbytes:
                has = f"has {record.nbytes} bytes" if record else "is missing"
                raise InputError(
                    f"{archive}: parameter {name!r} {has}, expected {wanted!r} ({wanted.nbytes} bytes): the archive "
                    f"belongs to another bundle: export again"
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
    """Returns the signature with a guard for every tensor that is not donated.

    A debug module needs that: directions are those of the plain module, which lacks the nodes that only tags use.
    """
    return replace(
        signature,
        arguments=tuple(
            replace(argument, effective=None, guarded=argument.kind == "tensor" and not argument.donated)
            for argument in signature.arguments
        ),
    )
