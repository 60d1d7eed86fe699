import json
from dataclasses import replace
from typing import Any

import pytest

from compile_hlo.directions import LoweredArgument, LoweredResult, Signature, reflected
from lang_core import DescriptionError, DeviceError, TensorSpec, bf16, bool_, f32, i32, i64, u8
from run_iree.sessions._signature import check_aliases, check_described, signature_of_reflection

_C = TensorSpec((7, 3), f32)


def _reflection(arguments: str, results: str) -> dict[str, str]:
    return {"iree.abi.declaration": f"sync func @main({arguments}) -> ({results})"}


def test_a_declaration_is_read() -> None:
    signature = signature_of_reflection(
        "main",
        _reflection(
            "%input0: i32, %input1: tensor<2x3xbf16>, %input2: tensor<i64>, "
            "%input3: tensor<3x5xi8> {iree.abi.encoding = tensor<3x5xui8>}, %input4: tensor<4xi1>, "
            "%input5: tensor<7x3xf32> {iree.abi.output = 1 : index}",
            "%output0: tensor<0x2xf32>, %output1: tensor<7x3xf32>",
        ),
    )
    assert signature == Signature(
        "main",
        (
            LoweredArgument("input0", TensorSpec((), i32), "scalar", effective=None),
            LoweredArgument("input1", TensorSpec((2, 3), bf16), effective=None, guarded=True),
            LoweredArgument("input2", TensorSpec((), i64), effective=None, guarded=True),
            LoweredArgument("input3", TensorSpec((3, 5), u8), effective=None, guarded=True),
            LoweredArgument("input4", TensorSpec((4,), bool_), effective=None, guarded=True),
            LoweredArgument("input5", _C, alias_result="output1", effective=None, in_place=True),
        ),
        (LoweredResult("output0", TensorSpec((0, 2), f32)), LoweredResult("output1", _C)),
    )


def test_nothing_in_and_nothing_out() -> None:
    assert signature_of_reflection("main", _reflection("", "")) == Signature("main", (), ())


@pytest.mark.parametrize("kind", ["tensor<?x3xf32>", "tensor<2x3xi4>", "i7", "tensor<2xcomplex<f32>>"])
def test_a_type_that_cannot_be_passed(kind: str) -> None:
    with pytest.raises(
        DeviceError, match=r"entry point 'main': value 'x' has type .*not supported; static shapes of our dtypes are"
    ):
        signature_of_reflection("main", _reflection(f"%x: {kind}", ""))


def test_no_declaration() -> None:
    with pytest.raises(DeviceError, match="entry point 'main' has no declaration in its reflection, found ''"):
        signature_of_reflection("main", {})


def test_an_alias_beyond_the_results() -> None:
    with pytest.raises(DeviceError, match="argument 'k' aliases result 1, found 1 results"):
        signature_of_reflection(
            "main", _reflection("%k: tensor<7x3xf32> {iree.abi.output = 1 : index}", "%r: tensor<7x3xf32>")
        )


def _aliasing(name: str, spec: TensorSpec = _C, result: str = "r", *, in_place: bool = True) -> LoweredArgument:
    return LoweredArgument(name, spec, alias_result=result, in_place=in_place)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [_aliasing("k", result="s")],
            "argument 'k' aliases result 's', which is not found; available: r; export again",
        ),
        (
            [_aliasing("k", TensorSpec((3, 7), f32))],
            r"'k' \(f32\[3,7\]\) aliases result 'r' \(f32\[7,3\]\): .*export again",
        ),
        ([_aliasing(name) for name in "kv"], "'v' .* aliases .* as does 'k'"),
    ],
)
def test_an_alias_that_cannot_be(arguments: list[LoweredArgument], message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        check_aliases(Signature("main", tuple(arguments), (LoweredResult("r", _C),)))


def test_a_result_with_a_buffer_of_its_own_is_no_alias() -> None:
    arguments = (_aliasing("x", TensorSpec((5,), f32), in_place=False), _aliasing("k"))
    signature = Signature("main", arguments, (LoweredResult("y", _C), LoweredResult("r", _C)))
    check_aliases(signature)
    assert signature.aliases == {1: 1}
    assert [argument.donated for argument in arguments] == [True, True]


_STEP = Signature(
    "main",
    (LoweredArgument("x", _C), LoweredArgument("k", _C, alias_result="r", effective="INOUT", in_place=True)),
    (LoweredResult("r", _C),),
)
_COMPILED = {
    **_reflection("%x: tensor<7x3xf32>, %k: tensor<7x3xf32> {iree.abi.output = 0 : index}", "%r: tensor<7x3xf32>"),
    "tapeline.signature": json.dumps(reflected(_STEP)),
}


def _with(index: int, **fields: Any) -> Signature:
    arguments = list(_STEP.arguments)
    arguments[index] = replace(arguments[index], **fields)
    return replace(_STEP, arguments=tuple(arguments))


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (_with(0, name="y"), "argument 'y': name is y in the description, x in the module 'm.vmfb'"),
        (_with(0, effective="INOUT"), "argument 'x': effective is INOUT in the description, IN in the module"),
        (_with(0, guarded=True), "argument 'x': guarded is True in the description, False in the module"),
        (_with(0, spec=TensorSpec((7,), f32)), r"argument 'x': type is tensor f32\[7\] in the desc.* f32\[7,3\] in"),
        (_with(1, in_place=False), "argument 'k': in_place is False in the description, True in the module"),
        (_with(1, effective=None, in_place=False), r"aliased result is \{\} in the description, \{0: 1\} in the mod"),
        (_with(1, alias_result=None), "argument 'k': direction is IN in the description, INOUT in the module"),
        (replace(_STEP, arguments=_STEP.arguments[:1]), "number of arguments is 1 in the description, 2 in the module"),
        (replace(_STEP, results=(LoweredResult("r", TensorSpec((3,), f32)),)), r"result 'r': type is f32\[3\] in the"),
    ],
)
def test_a_description_that_contradicts_its_module_is_refused(signature: Signature, message: str) -> None:
    with pytest.raises(DescriptionError, match=f"entry point 'main': .*{message}.* export again"):
        check_described(signature, _COMPILED, "m.vmfb")


def test_a_description_of_its_module_is_accepted() -> None:
    check_described(_STEP, _COMPILED, "m.vmfb")
    check_described(_with(0, effective=None, guarded=True), _COMPILED, "m.vmfb")  # directions that were not recorded


@pytest.mark.parametrize("text", ["{", "[]", '{"args": []}', '{"args": [1], "results": []}'])
def test_directions_of_a_module_that_cannot_be_read(text: str) -> None:
    with pytest.raises(DescriptionError, match=r"tapeline\.signature of the compiled function cannot be read"):
        check_described(_STEP, {**_COMPILED, "tapeline.signature": text}, "m.vmfb")


def test_names_are_those_of_the_lowering() -> None:
    declared = _reflection(
        "%input0: tensor<7x3xf32>, %input1: tensor<7x3xf32> {iree.abi.output = 0 : index}", "%output0: tensor<7x3xf32>"
    )
    signature = signature_of_reflection("main", {**declared, "tapeline.signature": json.dumps(reflected(_STEP))})
    assert [argument.name for argument in signature.arguments] == ["x", "k"]
    assert [result.name for result in signature.results] == ["r"]
    assert signature.aliases == {0: 1}
    fewer = replace(_STEP, arguments=_STEP.arguments[1:])
    with pytest.raises(DescriptionError, match="names the arguments k, and the function has 2: export again"):
        signature_of_reflection("main", {**declared, "tapeline.signature": json.dumps(reflected(fewer))})
