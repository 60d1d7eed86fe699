import dataclasses
import typing
from pathlib import Path
from typing import Any

import pytest

from lang_core import InputError
from tapeline.exporting import ExportKeywords, ExportOptions, export


def test_keywords_are_the_fields_of_the_options() -> None:
    hints = typing.get_type_hints(ExportOptions)
    fields = [field.name for field in dataclasses.fields(ExportOptions)]
    assert fields[:2] == ["model", "output"]
    assert typing.get_type_hints(ExportKeywords) == {name: hints[name] for name in fields[2:]}
    assert list(ExportKeywords.__annotations__) == fields[2:]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch=0: expected a whole number above 0"),
        ({"sequence": 2.5}, "sequence=2.5: expected a whole number above 0"),
        ({"max_memory": True}, "max_memory=True: expected a whole number above 0"),
        ({"dtype": "fp8"}, r"dtype=fp8: unknown 'fp8': known are f32, bf16, f16"),
        ({"verify": "irree"}, "verify=irree: unknown 'irree': known are auto, .*; did you mean 'iree'"),
        (
            {"target": ["vxmv"]},
            "target=vxmv: unknown 'vxmv': known are none, llvm-cpu, .*; did you mean 'vmvx'",
        ),
        ({"target": ["vmvx", "vmvx"]}, "target=vmvx,vmvx: name each of none, llvm-cpu, .* at most once"),
        ({"target": ["none"]}, "target=none: none goes with no other target"),
        ({"target": "vmvx"}, r"target='vmvx': expected a sequence of names, such as \['vmvx'\]"),
        ({"entry_points": "forward"}, r"entry_points='forward': expected a sequence of names"),
        ({"graph": ["png"]}, "graph=png: unknown 'png': known are "),
        ({"quantize": "q4"}, "quantize=q4: unknown: known are none, stored, auto, q8_0, q4_0"),
        (
            {"quantize": "Q4_K_M"},
            "quantize=q4_k_m: is a mix of encodings .*: give quantize=auto for .*, or quantize=q4_k for all matrices",
        ),
        ({"quantize": "iq2_xs"}, "quantize=iq2_xs: unknown: known are none, stored, auto, q8_0"),
        ({"quantize": "int8"}, r"known are none, .*; did you mean 'q8_0'\?"),
        ({"quantize": "float16"}, "f16 is no encoding of packed matrices: give quantize=none with dtype=f16"),
        ({"stablehlo_target_version": "1"}, "stablehlo_target_version=1: expected a version such as 1.0.0"),
        ({"dump_tags": ["a", "a"]}, "dump_tags=a,a: expected names or globs, each once"),
    ],
)
def test_values_are_checked_when_options_are_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ExportOptions("demo", Path("bundle"), **options)


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"dtype": "float16"}, "dtype", "f16"),
        ({"dtype": "half"}, "dtype", "f16"),
        ({"dtype": "BFLOAT16"}, "dtype", "bf16"),
        ({"dtype": "float32"}, "dtype", "f32"),
        ({"target": ["cpu"]}, "target", ("llvm-cpu",)),
        ({"target": ("vulkan", "vmvx")}, "target", ("vulkan-spirv", "vmvx")),
        ({"quantize": "Q8_0"}, "quantize", "q8_0"),
    ],
)
def test_other_names_of_values(options: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(ExportOptions("demo", Path("bundle"), **options), field) == value


def test_positions_per_row_are_slots() -> None:
    given: Any = {"positions": "per_row", "batch": 3, "entry_points": ("prefill", "decode")}
    options = ExportOptions("demo", Path("bundle"), **given)
    assert (options.slots, options.batch, options.entry_points) == (3, 1, None)
    assert dataclasses.replace(options, dtype="f16").slots == 3
    with pytest.raises(
        InputError, match=r"positions=per_row with batch=3 is an older spelling of slots=3, .* slots is 2"
    ):
        ExportOptions("demo", Path("bundle"), **given, slots=2)
    with pytest.raises(
        InputError, match="entry_points=prefill,verify with positions=per_row, which is an older spelling"
    ):
        ExportOptions("demo", Path("bundle"), **{**given, "entry_points": ("prefill", "verify")})


def test_an_unknown_option_has_near_names(tmp_path: Path) -> None:
    unknown: Any = {"max_sequense": 64}
    with pytest.raises(InputError, match=r"unknown option 'max_sequense': .*; did you mean 'max_sequence'"):
        export("demo", tmp_path / "bundle", **unknown)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"entry_points": ["prefill", "decode"]}, "entry_points=prefill,decode"),
        ({"batch": 2}, "batch=2"),
    ],
)
def test_slots_go_with_no_other_entry_points(options: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"slots=3 with {named}: a bundle with slots has entry points"):
        export("demo", tmp_path / "bundle", slots=3, **options)
    assert not list(tmp_path.iterdir())
