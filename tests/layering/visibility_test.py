"""Checks the layers as Bazel itself reads them, by the queries beside this file."""

from pathlib import Path

import pytest

from tests.layering._layers import LAYERS, allowed_edges, forbidden_edges

HERE = Path(__file__).parent


def answer(query: str) -> list[str]:
    """Returns the labels in the output of a genquery of this package, those of package groups left out."""
    return [label for label in (HERE / query).read_text().split() if not label.endswith("_clients")]


@pytest.mark.parametrize(("package", "below"), forbidden_edges())
def test_a_forbidden_dependency_is_not_visible(package: str, below: str) -> None:
    assert f"//{below}:{below}" not in answer(f"visible_to_{package}")


@pytest.mark.parametrize(("package", "below"), allowed_edges())
def test_an_allowed_dependency_is_visible(package: str, below: str) -> None:
    assert f"//{below}:{below}" in answer(f"visible_to_{package}")


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_a_wheel_is_made_of_the_layers_below_alone(package: str) -> None:
    """Transitively, and whatever their visibility: the sources in a wheel depend on no other layer."""
    labels = answer(f"deps_of_{package}")
    assert f"//{package}:{package}" in labels
    reached = {name for name in LAYERS if any(label.startswith((f"//{name}:", f"//{name}/")) for label in labels)}
    assert reached <= {package, *LAYERS[package].packages}


def test_a_model_knows_no_compiler() -> None:
    labels = answer("deps_of_transformer_core")
    assert [label for label in labels if "compile_" in label or "iree" in label or "jax" in label] == []
