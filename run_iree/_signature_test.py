import pytest

from lang_core import DeviceError, TensorSpec, bf16, bool_, f32, i32, i64, u8
from run_iree._signature import ArgumentSpec, ResultSpec, Signature, signature_of_reflection

_C = TensorSpec((7, 3), f32)


def _reflection(arguments: str, results: str) -> dict[str, str]:
    return {"iree.abi.declaration": f"sync func @main({arguments}) -> ({results})"}


def test_a_declaration_is_read() -> None:
    found = signature_of_reflection(
        "main",
        _reflection(
            "%input0: i32, %input1: tensor<2x3xbf16>, %input2: tensor<i64>, "
            "%input3: tensor<3x5xi8> {iree.abi.encoding = tensor<3x5xui8>}, %input4: tensor<4xi1>, "
            "%input5: tensor<7x3xf32> {iree.abi.output = 1 : index}",
            "%output0: tensor<0x2xf32>, %output1: tensor<7x3xf32>",
        ),
    )
    assert found == Signature(
        (
            ArgumentSpec("input0", TensorSpec((), i32), "scalar"),
            ArgumentSpec("input1", TensorSpec((2, 3), bf16), hazard=True),
            ArgumentSpec("input2", TensorSpec((), i64), hazard=True),
            ArgumentSpec("input3", TensorSpec((3, 5), u8), hazard=True),
            ArgumentSpec("input4", TensorSpec((4,), bool_), hazard=True),
            ArgumentSpec("input5", _C, donated=True, alias_result=1),
        ),
        (ResultSpec("output0", TensorSpec((0, 2), f32)), ResultSpec("output1", _C)),
    )


def test_nothing_in_and_nothing_out() -> None:
    assert signature_of_reflection("main", _reflection("", "")) == Signature((), ())


@pytest.mark.parametrize("kind", ["tensor<?x3xf32>", "tensor<2x3xi4>", "i7", "tensor<2xcomplex<f32>>"])
def test_a_type_that_cannot_be_passed(kind: str) -> None:
    with pytest.raises(DeviceError, match=r"entry point 'main': value 'x' has type .*static shapes of our dtypes"):
        signature_of_reflection("main", _reflection(f"%x: {kind}", ""))


def test_no_declaration() -> None:
    with pytest.raises(DeviceError, match="entry point 'main' has no declaration in its reflection, found ''"):
        signature_of_reflection("main", {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([ArgumentSpec("k", _C, donated=True, alias_result=1)], "argument 'k' aliases result 1, found 1 results"),
        ([ArgumentSpec("k", _C, donated=True, alias_result=-1)], "argument 'k' aliases result -1"),
        ([ArgumentSpec("k", _C, alias_result=0)], "'k' .*not donated.* aliases result 'r'.*export again"),
        (
            [ArgumentSpec("k", TensorSpec((3, 7), f32), donated=True, alias_result=0)],
            r"'k' \(f32\[3,7\], donated\) aliases result 'r' \(f32\[7,3\]\)",
        ),
        ([ArgumentSpec(n, _C, donated=True, alias_result=0) for n in "kv"], "'v' .* aliases .* as does 'k'"),
    ],
)
def test_an_alias_that_cannot_be(arguments: list[ArgumentSpec], message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        Signature(tuple(arguments), (ResultSpec("r", _C),))
