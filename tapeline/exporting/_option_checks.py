"""Checks of an export's options against each other."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from compile_hlo.portable import ARTIFACT_VERSION
from lang_core import InputError, check_extra
from run_iree import compiler_path
from tapeline.exporting._options import PER_DEVICE_TARGET, ExportOptions
from tapeline.quantizing import AUTO

# Targets with sets of flags to choose among (autotune.iree_compiler.CANDIDATE_FLAGS).
_TUNED_TARGETS: Final = ("llvm-cpu",)
_LANES: Final = 16


def check_options(options: ExportOptions) -> None:
    """Checks options against each other, before any work.

    Raises:
        InputError: options contradict each other, or the report cannot be written.
    """
    if options.verify in ("interpreter", "iree", "jax", "reference") and options.weights == "none":
        raise InputError(f"verify={options.verify} compares results, and weights=none gives none: choose verify=parse")
    if options.verify == "iree" and not options.compiled:
        raise InputError("verify=iree runs the compiled module, and target=none gives none: name a target")
    _check_reference(options)
    if options.tune and (options.weights == "none" or not options.compiled):
        raise InputError("`tune` runs the compiled module: it needs a `target`, and `weights` other than none")
    others = [target for target in options.compiled if target not in _TUNED_TARGETS]
    if options.tune and others:
        raise InputError(
            f"`tune` with target={','.join(others)}: it has no flags to choose among: tune {', '.join(_TUNED_TARGETS)}"
        )
    if options.kernels != "none" and len(options.compiled) > 1:
        raise InputError(
            f"kernels={options.kernels} with target={','.join(options.target)}: configurations are chosen for one "
            f"device, and all targets have one module: export a bundle per target"
        )
    if options.budget is not None and options.weights == "none":
        raise InputError(f"quantize={AUTO} measures weights, and weights=none reads none: name an encoding")
    _check_packages(options)
    if options.slots is not None:
        _check_slots(options)
    if options.pages is not None and options.slots is None:
        raise InputError(
            f"pages={options.pages} without slots: pages are shared by the slots of a server: give `slots` too"
        )
    if options.adapters is not None:
        _check_adapters(options)
    if options.page_tokens is not None and options.page_tokens % _LANES:
        raise InputError(
            f"page_tokens={options.page_tokens}: kernels read {_LANES} positions at a time: choose a multiple of them"
        )
    _check_mesh(options)
    _check_report(options.report)


def _check_packages(options: ExportOptions) -> None:
    """Checks that the packages are installed that only some options need.

    Raises:
        MissingPackageError: one is not.
    """
    if options.compiled:
        compiler_path()
    if options.verify in ("interpreter", "jax"):
        check_extra("jax", f"verify={options.verify}")
    if options.mesh is not None:
        check_extra("jax", f"mesh={options.mesh}")
    if options.stablehlo_target_version != ARTIFACT_VERSION:
        check_extra("jax", f"stablehlo_target_version={options.stablehlo_target_version}")


def _check_reference(options: ExportOptions) -> None:
    if options.verify != "reference":
        if options.reference_python is not None:
            raise InputError(
                f"reference_python={options.reference_python} runs verify=reference, and verify is {options.verify}: "
                f"leave one out"
            )
        return
    if options.num_layers is not None:
        raise InputError(
            f"verify=reference with num_layers={options.num_layers}: the reference runs every layer: leave one out"
        )


def _check_slots(options: ExportOptions) -> None:
    for name, value, plain in (
        ("entry_points", options.entry_points, None),
        ("batch", options.batch, 1),
    ):
        if value != plain:
            text = ",".join(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
            raise InputError(
                f"slots={options.slots} with {name}={text}: a bundle with slots has entry points, batches and "
                f"positions of its own: leave out {name}"
            )


def _check_adapters(options: ExportOptions) -> None:
    if options.slots is None:
        raise InputError(
            f"adapters={options.adapters} without slots: requests of a server choose adapters: give `slots` too, or "
            f"merge one (`adapter`)"
        )
    for name, value, plain in (("mesh", options.mesh, None), ("kernels", options.kernels, "none")):
        if value != plain:
            raise InputError(
                f"adapters={options.adapters} with {name}={value}: not supported: leave one out, or merge an adapter "
                f"(`adapter`)"
            )
    if options.weights == "none":
        raise InputError(
            f"adapters={options.adapters} with weights=none: the checkpoint says which matrices adapters change: leave "
            f"one out"
        )


def _check_mesh(options: ExportOptions) -> None:
    shape = options.mesh_shape
    if shape is None:
        if PER_DEVICE_TARGET in options.target:
            raise InputError(
                f"target={PER_DEVICE_TARGET} writes the program of one device of a mesh, and there is no mesh: give "
                f"`mesh`, such as tp=2"
            )
        return
    if "fsdp" in shape.names:
        raise InputError(f"mesh={shape}: fsdp cuts parameters while a model is trained: choose tp, ep or dp")
    if options.slots is not None and shape.size_of("dp") > 1:
        raise InputError(
            f"slots={options.slots} with mesh={shape}: requests share the rows of the caches, so dp cannot cut them: "
            f"leave out dp, and run a server for each part of the devices"
        )


def _check_report(path: Path | None) -> None:
    if path is None:
        return
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir() or not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"report={path}: no file can be written there: choose another")
