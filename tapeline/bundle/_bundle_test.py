"""Bundles that are refused before they are loaded onto a device."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo.directions import Signature
from lang_core import InputError, MappingWeights, TensorSpec
from run_iree.archive import ArchiveEntry, write_archive
from tapeline.bundle import ARCHIVE, MARK, Bundle, KernelConfig, executable_name

SPEC = TensorSpec((2, 3), "f32")


def make(directory: Path, **fields: Any) -> Bundle:
    described: dict[str, Any] = {"parameters": {"w": {"dtype": "f32", "shape": [2, 3]}}}
    config = KernelConfig([Signature("main", (), ())], **(described | fields))
    config.write(directory / MARK)
    (directory / executable_name("llvm-cpu")).write_bytes(b"no module")
    write_archive(
        directory / ARCHIVE, [ArchiveEntry("w", "w", SPEC)], MappingWeights({"w": np.ones((2, 3), np.float32)})
    )
    return Bundle(directory)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"w": {"dtype": "f32", "shape": [2, 4]}}, r"'w' has 24 bytes, expected f32\[2,4\] \(32 bytes\)"),
        ({"v": {"dtype": "f32", "shape": [2, 3]}}, "'v' is missing"),
    ],
)
def test_an_archive_of_another_bundle_is_refused(tmp_path: Path, described: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(tmp_path, parameters=described).session("local-sync")


def test_a_module_for_a_cpu_that_this_one_is_not_is_refused(tmp_path: Path) -> None:
    cpu = {"target": "host", "name": "A CPU of the future", "features": ["antigravity"]}
    bundle = make(tmp_path, targets={"llvm-cpu": {"cpu": cpu}})
    with pytest.raises(InputError, match="compiled for A CPU of the future, and this CPU lacks antigravity"):
        bundle.session("local-sync", trust_compiled=True)


def test_a_device_without_a_module_is_refused(tmp_path: Path) -> None:
    bundle = make(tmp_path, targets={"llvm-cpu": {}})
    with pytest.raises(InputError, match=r"'vmvx' runs modules of target vmvx; .* was compiled for llvm-cpu: export"):
        bundle.session("vmvx")


def test_an_unknown_entry_point_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no entry point 'mian'; available: main; did you mean 'main'"):
        make(tmp_path).entry_point("mian")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[]", "schema 'list'"),
        ('{"schema": 3}', "schema 3, this version reads schema 1 and 2"),
        ('{"schema": 2}', "damaged"),
        ('{"schema": 1}', "damaged"),
        ('{"schema": 1, "entry_points": [{"name": "f", "args": [], "results": [{}]}]}', "damaged"),
    ],
)
def test_a_damaged_description_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / MARK).write_text(text)
    with pytest.raises(InputError, match=message):
        Bundle(tmp_path)


def test_a_directory_without_a_description_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a bundle: it has no kernel_config\.json: export one first"):
        Bundle(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"no kernel_config\.json: it holds a model: .* with `tapeline export .*`"):
        Bundle(tmp_path)


def test_a_description_is_read_as_it_was_written(tmp_path: Path) -> None:
    bundle = make(tmp_path, model={"family": "x"}, sha256={"a": "b"})
    assert KernelConfig.read(tmp_path / MARK) == bundle.config
