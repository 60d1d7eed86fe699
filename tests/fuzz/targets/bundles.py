"""Whole bundles: one file of a bundle is replaced, then every file of the bundle is opened as ``load`` opens it.

An input is a line with the file's name, then its contents. Nothing is compiled or run. With `` sealed`` behind the
name, the description keeps its seals and hashes, which refuse most changes; without, it is what somebody who means harm
writes: no seals, and the hash of the replaced file.
"""

import hashlib
import json
import shutil
import zlib
from pathlib import Path
from random import Random
from typing import Any

import tapeline
from generation import load_default_sampling, load_eos_ids
from lang_core import CheckpointError
from tapeline.bundle import ARCHIVE, MARK, Bundle
from tapeline.text import TOKENIZER_FILE, ChatTemplate, NoTemplateError, Tokenizer
from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target

_TEMPLATE = "chat_template.jinja"
_LARGEST = 60_000  # bytes of a file that is mutated
_HEADER = 6_000  # bytes of an archive that hold its index
_VALUES = ("f32", "i32", "bf16", "IN", "OUT", "INOUT", "llvm-cpu", "decode", "prefill", [1, 4], [2**40], "module.mlir")
_SEALED = b" sealed"
_TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [{"id": 0, "content": "</s>", "special": True}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "model": {
        "type": "BPE",
        "vocab": {token: index for index, token in enumerate(("</s>", *"abcdehpt\u0120", "th", "the"))},
        "merges": [["t", "h"], ["th", "e"]],
    },
}
_TEXT_FILES = frozenset({TOKENIZER_FILE, "tokenizer_config.json", "config.json", "generation_config.json", _TEMPLATE})
_WHOLE: dict[str, bytes] = {}
_FIELDS: dict[str, Any] = {}


def _files() -> dict[str, bytes]:
    """Returns the files of a bundle of the demo model, which is exported once, and stays in the working directory."""
    if not _WHOLE:
        path = Path.cwd() / "bundle"
        shutil.rmtree(path, ignore_errors=True)
        tapeline.export("demo", path, num_layers=1, sequence=4, target=[], verify="none")
        (path / _TEMPLATE).write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}")
        (path / TOKENIZER_FILE).write_text(json.dumps(_TOKENIZER))  # the demo's takes 30 ms to read
        _FIELDS.update(json.loads((path / MARK).read_bytes()))
        for name in (_TEMPLATE, TOKENIZER_FILE):
            _FIELDS["sha256"][name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
        (path / MARK).write_text(json.dumps(_FIELDS))
        _WHOLE.update({file.name: file.read_bytes() for file in sorted(path.iterdir())})
        del _FIELDS["seals"]
    return _WHOLE


def _seeds() -> list[bytes]:
    seeds = [
        name.encode() + end + b"\n" + (data[:_HEADER] if name == ARCHIVE else data)
        for name, data in _files().items()
        for end in (b"", _SEALED)
        if len(data) <= _LARGEST or name == ARCHIVE
    ]
    return [*seeds, f"{MARK}\n{json.dumps(_FIELDS)}".encode()]


def _mutate(data: bytes, draw: Random) -> bytes:
    head, _, content = data.partition(b"\n")
    if draw.random() < 0.05:
        head = draw.choice([*_files()]).encode() + draw.choice((b"", _SEALED))
        content = _WHOLE[head.decode().split(" ")[0]][:_HEADER]
    if b".json" in head:
        return head + b"\n" + mutate_json(content, draw, _VALUES)
    changed = bytearray(content)
    for _ in range(draw.choice((1, 2, 4))):
        if changed:
            changed[draw.randrange(len(changed))] = draw.choice((0, 1, 255, draw.randrange(256)))
    return head + b"\n" + bytes(changed)


def _run(data: bytes) -> bool:
    head, _, content = data.partition(b"\n")
    names = [*_files()]
    chosen = head.removesuffix(_SEALED).decode("latin-1")
    name = chosen if chosen in _WHOLE else names[zlib.crc32(head) % len(names)]
    if name == ARCHIVE:
        content += _WHOLE[name][len(content) :]
    opens = not head.endswith(_SEALED) and name != MARK
    try:
        written(f"bundle/{name}", content)
        if opens:
            hashes = {**_FIELDS["sha256"], name: hashlib.sha256(content).hexdigest()}
            written(f"bundle/{MARK}", json.dumps({**_FIELDS, "sha256": hashes}).encode())
        _open(Path.cwd() / "bundle", texts=name in _TEXT_FILES)
    finally:
        for changed in {name, MARK}:
            written(f"bundle/{changed}", _WHOLE[changed])
    return True


def _open(path: Path, *, texts: bool) -> None:
    """Opens a bundle; the files that hold texts, which take longest, only if one of them may be another."""
    bundle = Bundle(path)
    bundle.checks.check("full")
    for point in bundle.config.entry_points:
        bundle.entry_point(point.name)
    weights = bundle.weights()
    for key, fields in bundle.config.parameters.items() if weights is not None else ():
        if weights is not None and list(weights.read(key).shape) != list(fields["shape"]):
            raise CheckpointError(f"{key}: the archive has another shape than the description")
    if bundle.config.targets:
        bundle.artifact()
    if not texts:
        return
    load_default_sampling(path)
    load_eos_ids(path)
    tokenizer = Tokenizer.load(path)
    tokenizer.decode(tokenizer.encode("the tape"))
    try:
        ChatTemplate.find(path).render([{"role": "user", "content": "Hi"}])
    except NoTemplateError:
        return


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate, headed=True)
