"""Hostile values in every field of kernel_config.json: each is read, or one typed error."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compile_hlo.directions import LoweredArgument, LoweredResult, Signature
from lang_core import InputError, TensorSpec
from tapeline.bundle import MARK, Bundle, KernelConfig
from tapeline.bundle._kernels import KernelRecord

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**31, 2**62, 2**64, 10**39, 1e308, float("nan"), float("inf"), "", "x", "../../x", "f32",
    "a" * 100_000, [], {}, [[]], [{}], [None], ["x"], [7], [1.5], [-1], [2**62, 2**62], [True, True], {"": {}},
    {"x": None}, {"shape": [1], "dtype": "f32"}, {"target": "host", "features": 7}, {"features": [[]]},
)  # fmt: skip


def described() -> dict[str, Any]:
    """The fields of a file that has every part; the seals are left out, which would refuse any change."""
    cache = TensorSpec((2, 4, 8), "f32")
    arguments = (
        LoweredArgument("ids", TensorSpec((1, 4), "i32"), "tensor", None, "IN"),
        LoweredArgument("cache", cache, "tensor", "cache_out", "INOUT"),
        LoweredArgument("position", TensorSpec((), "i32"), "scalar", bounds=(0, 7)),
    )
    results = (LoweredResult("logits", TensorSpec((1, 4, 9), "f32")), LoweredResult("cache_out", cache))
    entry = {"dtype": "f32", "shape": [4], "direction": "IN", "effective": "IN", "kind": "tensor"}
    result = {"dtype": "f32", "shape": [4], "direction": "OUT", "alias_arg": None}
    config = KernelConfig(
        [Signature("decode", arguments, results, ("w",))],
        kernels=[KernelRecord("block", 2, ["IN", "OUT"], arguments=[entry], results=[result])],
        parameters={"w": {"dtype": "f32", "shape": [2, 3]}},
        targets={
            "llvm-cpu": {
                "file": "module.llvm-cpu.vmfb",
                "flags": ["-O3"],
                "cpu": {"target": "host", "name": "some", "features": ["avx2"]},
                "schedule": {"decode": {"dispatches": 3}},
            }
        },
        model={
            "family": "LlamaForCausalLM", "vocabulary": 9, "max_sequence": 8, "slots": 2, "batch": 1, "layers": 2,
            "rope": {"base": 1e4, "scaling": {"type": "default"}}, "windows": [None, 4], "tied": False,
        },
        producer={"tapeline": "0.1"},
        sha256={"module.mlir": "0" * 64},
    )  # fmt: skip
    fields = json.loads(config.text())
    del fields["seals"]
    return fields


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield (*path, key)
        if isinstance(value[key], dict | list):
            yield from _places(value[key], (*path, key))


def _changed(fields: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(fields)
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return made


def read(directory: Path, fields: dict[str, Any]) -> bool:
    """Reads the file, and asks of the bundle what does not need a module; returns False if it was refused."""
    (directory / MARK).write_text(json.dumps(fields))
    try:
        bundle = Bundle(directory)
        for point in bundle.config.entry_points:
            bundle.entry_point(point.name)
        for device in ("local-sync", "vmvx"):
            bundle.session(device)
    except InputError as error:
        return "damaged" not in str(error) and "schema" not in str(error)
    raise AssertionError("a bundle without a module cannot run")


def test_every_field_of_a_description(tmp_path: Path) -> None:
    fields = described()
    assert read(tmp_path, fields)
    taken = refused = 0
    for place in _places(fields):
        for value in VALUES:
            if read(tmp_path, _changed(fields, place, value)):
                taken += 1
            else:
                refused += 1
    assert refused > 1000
    assert taken > 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: f["targets"]["llvm-cpu"]["cpu"].update(features=7),
            "cpu.features: expected a list of names",
        ),
        (lambda f: f["targets"].update({"llvm-cpu": []}), "targets.llvm-cpu: expected an object"),
        (lambda f: f["parameters"]["w"].update(shape=[2**62, 2**62]), "expected integers from 0 to"),
        (lambda f: f["parameters"]["w"].update(shape=[2**48] * 2), "elements at most"),
        (lambda f: f["parameters"]["w"].update(shape=[1] * 33), "expected a list of up to 32 integers"),
        (lambda f: f["parameters"]["w"].update(shape=[1.0]), "expected integers from 0 to"),
        (lambda f: f["entry_points"][0]["args"][2].update(bounds=[0, 1.5]), "'position': bounds .* two integers"),
        (lambda f: f["entry_points"][0]["args"][2].update(bounds=[0, 2**31]), "integers of 32 bits in order"),
        (lambda f: f["model"].update(max_sequence=-1), "model.max_sequence: expected an integer from 0 to 2147483647"),
        (lambda f: f["model"].update(vocabulary="x"), "model.vocabulary: expected an integer"),
        (
            lambda f: f["model"].update(slots=2**30),
            "model.slots: expected an integer from 0 to 1048576",
        ),
        (lambda f: f["model"].update(windows=[2**65]), "model.windows: expected an integer of up to 64 bits"),
        (lambda f: f["sha256"].update({"../x": "0" * 64}), "sha256: '../x' is no path of a file in the bundle"),
        (lambda f: f["sha256"].update({"": "0" * 64}), "sha256: '' is no path"),
        (lambda f: f["sha256"].update({"a": 7}), "sha256: 'a': expected a hash; found 7"),
        (lambda f: f.update(kernels=None), "damaged"),
        (lambda f: f.update(entry_points=[None]), "damaged"),
        (lambda f: f.update(zzz=1), "damaged"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    fields = described()
    change(fields)
    (tmp_path / MARK).write_text(json.dumps(fields))
    with pytest.raises(InputError, match=message):
        Bundle(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 2, "a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nests deeper than 100"),
        ('{"schema": 2, "schema": 2}', "has the key 'schema' twice"),
        ('{"schema": 2, "model": {"vocabulary": ' + "9" * 5000 + "}}", "has 5000 digits, 40 are read"),
        ("\ufeff{}", "begins with a byte order mark"),
    ],
)
def test_texts_beyond_bounds(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / MARK).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        Bundle(tmp_path)
