"""Arguments and results of entry points in ``.npy`` files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import InputError, bf16, near_names
from tapeline import cli
from tapeline.bundle import Bundle
from tapeline.runners import ENCODE, takes_texts
from tapeline.running._pictures import PIXELS, pixel_values


def read_inputs(entry_point: Signature, pairs: Sequence[str], directory: Path | None = None) -> list[np.ndarray | int]:
    """Reads an entry point's arguments from ``NAME=FILE.npy`` pairs; returns them in its order, of its shapes.

    Args:
        entry_point: the entry point.
        pairs: name of each argument, and file of an array of its spec's shape. The file of one picture may be an image.
        directory: the bundle, with the image processor's settings; None refuses images.

    Raises:
        InputError: a pair is malformed, names an unknown argument or one twice, one is missing, or an array does not
            fit.
    """
    files: dict[str, Path] = {}
    known = [argument.name for argument in entry_point.arguments]
    for pair in pairs:
        name, equals, file = pair.partition("=")
        if not equals or not file:
            raise InputError(f"input={pair}: expected NAME=FILE.npy; the arguments are {', '.join(known)}")
        if name not in known:
            raise InputError(f"input={pair}: {entry_point.name!r} has no argument {name!r}{near_names(name, known)}")
        if name in files:
            raise InputError(f"input={pair}: {name!r} is given twice")
        files[name] = cli.user_path(file)
    missing = [name for name in known if name not in files]
    if missing:
        raise InputError(f"entry point {entry_point.name!r}: `input` is missing for {', '.join(missing)}")
    return [_argument(argument.name, argument, files[argument.name], directory) for argument in entry_point.arguments]


def _argument(name: str, argument: LoweredArgument, path: Path, directory: Path | None) -> np.ndarray | int:
    spec, kind = argument.spec, argument.kind
    if name == PIXELS and directory is not None and path.suffix != ".npy":
        array = pixel_values(directory, spec.shape[1:], [path])
    else:
        array = _read(path)
    if array.dtype.kind == "V" and array.dtype.itemsize == 2 and spec.dtype is bf16:
        array = array.view(bf16.numpy)  # NumPy's files have no name for bfloat16
    if array.shape != spec.shape or array.dtype != spec.dtype.numpy:
        raise InputError(f"input={name}={path}: found {array.dtype}{list(array.shape)}, {name!r} is {spec!r}")
    return int(array) if kind == "scalar" else array


def _read(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError, MemoryError) as error:  # memory: a header that lies about the size
        raise InputError(f"{path}: not a .npy file: {error}") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: an archive of arrays; expected a single .npy array")
    return array


def write_results(directory: Path, results: dict[str, np.ndarray]) -> list[Path]:
    """Writes each result, of any shape, as ``<name>.npy``.

    Raises:
        InputError: the directory cannot be written.
    """
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, array in results.items():
            paths.append(directory / f"{name}.npy")
            with cli.whole_file(paths[-1]) as file:
                np.save(file, array)
    except OSError as error:
        raise InputError(f"output_dir={directory}: cannot be written: {error.strerror}") from None
    return paths


def encoder_inputs(bundle: Bundle, pairs: Sequence[str]) -> dict[str, np.ndarray | int] | None:
    """Reads the arguments of a bundle's encoder, of their specs' shapes.

    None for a bundle without an encoder, and without files for one that takes texts: prompts are its sources.

    Args:
        bundle: the bundle.
        pairs: ``NAME=FILE.npy`` for each argument.

    Raises:
        InputError: a file is given without an encoder, or the arrays do not fit it.
    """
    names = [entry_point.name for entry_point in bundle.config.entry_points]
    if not pairs and takes_texts(bundle):
        return None
    if ENCODE in names:
        point = bundle.entry_point(ENCODE)
        return dict(zip([argument.name for argument in point.arguments], read_inputs(point, pairs), strict=True))
    if pairs:
        raise InputError(
            f"input={pairs[0]}: {bundle.path} has the entry points {', '.join(names)}, and no {ENCODE} that would "
            "take it: leave it out"
        )
    return None
