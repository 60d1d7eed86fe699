"""Whole bundles: one file of a bundle is replaced, then description, weights, tokenizer and template are opened.

An input is a line with the file's name, then its contents. Nothing is compiled or run.
"""

import shutil
from pathlib import Path
from random import Random

import tapeline
from lang_core import CheckpointError
from tapeline.bundle import Bundle
from tapeline.text import ChatTemplate, NoTemplateError, Tokenizer
from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target

_LARGEST = 60_000  # bytes of a file that is mutated
_VALUES = ("f32", "i32", "bf16", "IN", "OUT", "INOUT", "llvm-cpu", "decode", "prefill", [1, 4], [2**40], "module.mlir")
_BUNDLE: list[Path] = []


def _bundle() -> Path:
    """Returns a bundle of the demo model, which is exported once."""
    if not _BUNDLE:
        path = Path.cwd() / "bundle"
        shutil.rmtree(path, ignore_errors=True)
        tapeline.export("demo", path, num_layers=1, sequence=4, target=[], verify="none")
        _BUNDLE.append(path)
    return _BUNDLE[0]


def _files() -> list[Path]:
    return sorted(path for path in _bundle().iterdir() if path.is_file())


def _seeds() -> list[bytes]:
    return [path.name.encode() + b"\n" + path.read_bytes() for path in _files() if path.stat().st_size <= _LARGEST]


def _mutate(data: bytes, draw: Random) -> bytes:
    name, _, content = data.partition(b"\n")
    if name.endswith(b".json"):
        return name + b"\n" + mutate_json(content, draw, _VALUES)
    changed = bytearray(content)
    for _ in range(draw.choice((1, 2, 4))):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    return name + b"\n" + bytes(changed)


def _run(data: bytes) -> bool:
    name, _, content = data.partition(b"\n")
    bundle = _bundle()
    path = bundle / name.decode("latin-1") if name in {file.name.encode() for file in _files()} else None
    if path is None:
        return False
    whole = path.read_bytes()
    written(str(path), content)
    try:
        _open(bundle)
    finally:
        written(str(path), whole)
    return True


def _open(path: Path) -> None:
    bundle = Bundle(path)
    for point in bundle.config.entry_points:
        bundle.entry_point(point.name)
    weights = bundle.weights()
    for key, fields in bundle.config.parameters.items() if weights is not None else ():
        if weights is not None and list(weights.read(key).shape) != list(fields["shape"]):
            raise CheckpointError(f"{key}: the archive has another shape than the description")
    if bundle.config.targets:
        bundle.artifact()
    tokenizer = Tokenizer.load(path)
    tokenizer.decode(tokenizer.encode("the tape"))
    try:
        ChatTemplate.find(path).render([{"role": "user", "content": "Hi"}])
    except NoTemplateError:
        return


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
