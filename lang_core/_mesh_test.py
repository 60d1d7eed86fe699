"""Meshes: what a text means, what is refused, and how a mesh cuts tensors."""

import hypothesis
import hypothesis.strategies as st
import pytest

from lang_core import MESH_AXES, ConfigError, MeshShape


def test_a_text_is_read_once_and_written_alike() -> None:
    mesh = MeshShape.parse(" tp=4, dp=2")
    assert mesh == MeshShape.of({"tp": 4, "dp": 2}) == MeshShape((("tp", 4), ("dp", 2)))
    assert (mesh.size, mesh.names, mesh.sizes, str(mesh)) == (8, ("tp", "dp"), {"tp": 4, "dp": 2}, "tp=4,dp=2")
    assert (mesh.size_of("dp"), mesh.size_of("ep"), mesh.size_of(None), list(mesh)) == (2, 1, 1, list(mesh.axes))


@hypothesis.given(st.dictionaries(st.sampled_from(MESH_AXES), st.integers(1, 4096), min_size=1))
def test_every_mesh_survives_its_text(sizes: dict[str, int]) -> None:
    assert MeshShape.parse(str(MeshShape.of(sizes))) == MeshShape.of(sizes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"mesh: expected at least one axis, found none; give axes as 'tp=2,dp=2'"),
        ("tp", r"mesh 'tp': 'tp' is no axis with a size; give axes as 'tp=2,dp=2'"),
        ("tp=2,", r"mesh 'tp=2,': '' is no axis with a size"),
        ("tp=-2", r"mesh 'tp=-2': 'tp=-2' is no axis with a size"),
        ("tp=2.0", r"'tp=2.0' is no axis with a size"),
        ("tp=0", r"mesh: the size of axis 'tp' is an integer of at least 1, found 0"),
        ("tp=2,tp=2", r"mesh tp=2,tp=2: axis 'tp' is given twice; give each axis one size"),
        ("fdsp=2", r"mesh: axis 'fdsp' not found; available: dp, tp, ep, fsdp; did you mean 'fsdp'"),
    ],
)
def test_what_is_no_mesh_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MeshShape.parse(text)


def test_sizes_are_integers() -> None:
    with pytest.raises(ConfigError, match="the size of axis 'tp' is an integer of at least 1, found True"):
        MeshShape.of({"tp": True})


def test_a_part_of_a_tensor() -> None:
    mesh = MeshShape.parse("tp=4,dp=2")
    assert mesh.local_shape((6, 8, 5), ("dp", "tp", None)) == (3, 2, 5)
    assert mesh.local_shape((6, 8), ("ep", None)) == (6, 8)  # no such axis: whole
    with pytest.raises(ConfigError, match=r"mesh tp=4,dp=2: tp=4 does not divide dimension 1 of \[6, 10\]; tp may be"):
        mesh.local_shape((6, 10), (None, "tp"))
    with pytest.raises(ConfigError, match=r"expected one axis or None per dimension of \[6, 10\], found \('tp',\)"):
        mesh.local_shape((6, 10), ("tp",))


def test_divisors() -> None:
    assert MeshShape.divisors(12, limit=4) == (1, 2, 3, 4)
    assert MeshShape.divisors(7) == (1, 7)
