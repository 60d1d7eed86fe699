"""Negative tests of the ops that move elements, of indexing and of control flow: ``test_<op>_c<n>``."""

import pytest

from lang_core import bool_, i32
from lang_core.ops._refusals_testing import Returning, refused, spec


def test_broadcast_c1() -> None:
    for shape in ((3,), (2, 4), (2, -3), ()):
        refused("broadcast_c1", "f32[2,3]", (shape,), r"\(2, 3\) does not broadcast to \(")
    refused("broadcast_c1", "f32[1]", ((-1,),), r"\(1,\) does not broadcast to \(-1,\)")


def test_reshape_c1() -> None:
    refused("reshape_c1", "f32[2,3]", ((5,),), r"6 elements do not fill shape \(5,\)")
    refused("reshape_c1", "f32[2,3]", ((-2, -3),), r"6 elements do not fill shape \(-2, -3\)")


def test_transpose_c1() -> None:
    for axes in ((0,), (0, 0), (0, 2)):
        refused("transpose_c1", "f32[2,3]", (axes,), r"\(0.*\) is no permutation of 2 axes")


def test_concat_c1() -> None:
    refused("concat_c1", "f32[2,3] f32[2,3]", (2,), "axis 2 is outside a tensor of 2 dimensions")
    refused("concat_c1", "f32[]", (0,), "axis 0 is outside a tensor of 0 dimensions")


def test_concat_c2() -> None:
    refused("concat_c2", "f32[2,3] f16[2,3]", (0,), "dtypes f32 and f16 differ")


def test_concat_c3() -> None:
    refused("concat_c3", "f32[2,3] f32[2,4]", (0,), r"shapes \(2, 3\) and \(2, 4\) differ beside axis 0")
    refused("concat_c3", "f32[2,3] f32[3]", (0,), r"shapes \(2, 3\) and \(3,\) differ beside axis 0")


def test_slice_c1() -> None:
    refused("slice_c1", "f32[2,3]", ((0,), (2, 3), (1, 1)), r"\(0,\), \(2, 3\), \(1, 1\) for 2 axes")


def test_slice_c2() -> None:
    for start, stop in ((-1, 2), (2, 1), (0, 4)):
        refused("slice_c2", "f32[3]", ((start,), (stop,), (1,)), f"{start} to {stop} is not inside a dimension of 3")


def test_slice_c3() -> None:
    refused("slice_c3", "f32[3]", ((0,), (3,), (0,)), r"step \(0,\)")


def test_pad_c1() -> None:
    refused("pad_c1", "f32[2,3] f32[]", ((1,), (0, 0), (0, 0)), r"\(1,\), \(0, 0\), \(0, 0\): 2 axes")


def test_pad_c2() -> None:
    refused("pad_c2", "f32[3] f32[]", ((0,), (-1,), (0,)), r"\(0,\), \(-1,\), \(0,\)")


def test_pad_c3() -> None:
    refused("pad_c3", "f32[3] i32[]", ((0,), (1,), (0,)), r"value is i32\[\] for f32")
    refused("pad_c3", "f32[3] f32[1]", ((0,), (1,), (0,)), r"value is f32\[1\] for f32")


def test_reverse_c1() -> None:
    refused("reverse_c1", "f32[2,3]", ((2,),), "axis 2 is outside a tensor of 2 dimensions")
    refused("reverse_c1", "f32[2,3]", ((1, 1),), r"axes \(1, 1\) name one axis twice")


def test_iota_c1() -> None:
    refused("iota_c1", "", ((2, 3), 2, i32), "axis 2 is outside a tensor of 2 dimensions")


def test_iota_c2() -> None:
    refused("iota_c2", "", ((2, 3), 0, bool_), "the dtype is bool")


@pytest.mark.parametrize("update", ["", "f32[1,2] "])
def test_dynamic_slice_c1(update: str) -> None:
    """Covers dynamic_update_slice too."""
    name, sizes = ("dynamic_update_slice", ()) if update else ("dynamic_slice", ((1, 2),))
    label = f"{name}_c1"
    refused(label, f"f32[2,3] {update}i32[]", sizes, "1 starts for 2 axes")
    refused(label, f"f32[2,3] {update}i32[] i64[]", sizes, r"a start is i64\[\]")
    refused(label, f"f32[2,3] {update}i32[1] i32[]", sizes, r"a start is i32\[1\]")
    refused(label, f"f32[2,3] {update}u8[] u8[]", sizes, r"a start is u8\[\]")


test_dynamic_update_slice_c1 = test_dynamic_slice_c1


def test_dynamic_slice_c2() -> None:
    for sizes in ((1, 4), (1,), (-1, 2)):
        refused("dynamic_slice_c2", "f32[2,3] i32[] i32[]", (sizes,), r"sizes \(.*\) do not fit into shape \(2, 3\)")


def test_dynamic_update_slice_c2() -> None:
    for update in ("f32[1,4]", "f32[2]"):
        refused("dynamic_update_slice_c2", f"f32[2,3] {update} i32[] i32[]", (), r"\(.*\) does not fit into \(2, 3\)")


def test_dynamic_update_slice_c3() -> None:
    refused("dynamic_update_slice_c3", "f32[2,3] f16[1,2] i32[] i32[]", (), "dtypes f16 and f32 differ")


def test_take_c1() -> None:
    refused("take_c1", "f32[2,3] i32[4]", (2,), "axis 2 is outside a tensor of 2 dimensions")


def test_take_c2() -> None:
    refused("take_c2", "f32[2,3] f32[4]", (0,), "indices are f32")


def test_take_c3() -> None:
    refused("take_c3", "f32[0,3] i32[4]", (0,), r"\(0, 3\) has no element along axis 0")


def test_gather_c1() -> None:
    refused("gather_c1", "f32[2,3] i32[2,3]", (-3,), "axis -3 is outside a tensor of 2 dimensions")


def test_gather_c2() -> None:
    refused("gather_c2", "f32[2,3] u8[2,3]", (0,), "indices are u8")


def test_gather_c3() -> None:
    for indices, shape in (("i32[2,4]", r"\(2, 4\)"), ("i32[2]", r"\(2,\)")):
        refused("gather_c3", f"f32[2,3] {indices}", (0,), rf"indices {shape} and x \(2, 3\) differ beside axis 0")


def test_gather_c4() -> None:
    refused("gather_c4", "f32[0,3] i32[1,3]", (0,), r"\(0, 3\) has no element along axis 0")


def test_scatter_c1() -> None:
    refused("scatter_c1", "f32[2,3] i32[2,3] f32[2,3]", (2, "set"), "axis 2 is outside a tensor of 2 dimensions")


def test_scatter_c2() -> None:
    refused("scatter_c2", "f32[2,3] bool[2,3] f32[2,3]", (0, "set"), "indices are bool")


def test_scatter_c3() -> None:
    refused("scatter_c3", "f32[2,3] i32[5,2] f32[5,2]", (0, "set"), r"indices \(5, 2\) and x \(2, 3\) differ beside")


def test_scatter_c4() -> None:
    refused("scatter_c4", "f32[2,3] i32[5,3] f32[4,3]", (0, "set"), r"updates are f32\[4,3\] for indices \(5, 3\)")
    refused("scatter_c4", "f32[2,3] i32[5,3] f64[5,3]", (0, "add"), r"updates are f64\[5,3\] .* and f32")


def test_scatter_c5() -> None:
    refused("scatter_c5", "f32[2,3] i32[2,3] f32[2,3]", (0, "sub"), "reduction 'sub'")


def test_scatter_c6() -> None:
    refused("scatter_c6", "bool[2,3] i32[2,3] bool[2,3]", (0, "max"), "max of bool")


def test_put_c1() -> None:
    refused("put_c1", "f32[2,3] i32[2,1] f32[2,1]", (2,), "axis 2 is outside a tensor of 2 dimensions")
    refused("put_c1", "f32[2,3] i32[2,1] f32[1,3]", (0,), "axis 0 is that of the rows")


def test_put_c2() -> None:
    for indices in ("f32[2,1]", "i32[2]", "i32[3,1]"):
        escaped = indices.replace("[", r"\[").replace("]", r"\]")
        refused("put_c2", f"f32[2,3] {indices} f32[2,1]", (1,), f"indices are {escaped} for 2 rows")


def test_put_c3() -> None:
    wanted = r"where f32\[2, 1, 5\] is wanted"
    refused("put_c3", "f32[2,3,5] i32[2,1] f32[2,2,5]", (1,), rf"updates are f32\[2,2,5\] {wanted}")
    refused("put_c3", "f32[2,3,5] i32[2,1] f16[2,1,5]", (1,), rf"updates are f16\[2,1,5\] {wanted}")


def test_put_c4() -> None:
    refused("put_c4", "f32[2,3] i32[2,4] f32[2,4]", (1,), "4 places in 3")


def test_put_c5() -> None:
    for where in ("bool[2]", "bool[2,2]", "i32[2,1]"):
        escaped = where.replace("[", r"\[").replace("]", r"\]")
        refused("put_c5", f"f32[2,3] i32[2,1] f32[2,1] {where}", (1,), rf"where is \[{escaped}\] for indices \(2, 1\)")


def test_while_c1() -> None:
    cond = Returning(spec("bool[1]"))
    refused("while_c1", "f32[2]", (cond, Returning(spec("f32[2]")), 1), r"cond returns \(bool\[1\],\)")


def test_while_c2() -> None:
    cond, body = Returning(spec("bool[]")), Returning(spec("f32[3]"))
    refused("while_c2", "f32[2]", (cond, body, 1), r"body returns \(f32\[3\],\) for values \(f32\[2\],\)")


def test_cond_c1() -> None:
    refused("cond_c1", "i32[]", (Returning(), Returning()), r"pred is i32\[\]")
    refused("cond_c1", "bool[1]", (Returning(), Returning()), r"pred is bool\[1\]")


def test_cond_c2() -> None:
    branches = Returning(spec("f32[2]")), Returning(spec("f32[3]"))
    refused("cond_c2", "bool[]", branches, r"the branches return \(f32\[2\],\) and \(f32\[3\],\)")
