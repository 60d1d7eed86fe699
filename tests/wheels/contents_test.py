"""A wheel holds all library sources of its package, nothing else, and says what it needs."""

import re

import pytest

import lang_core
from tests.layering._build_files import targets_of
from tests.layering._layers import EXTRAS, LAYERS, Layer, always
from tests.layering._sources import workspace_root
from tests.wheels._wheels import metadata_of, python_files_in

TARGETS = targets_of(workspace_root())


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_a_wheel_holds_the_library_sources_of_its_package(package: str) -> None:
    """Checks that a wheel has its libraries' sources, and the programs that they run in other interpreters."""
    programs = {
        file.relative_to(workspace_root()).as_posix()
        for file in (workspace_root() / package).rglob("run_*_reference.py")
    }
    expected = {
        src
        for target in TARGETS
        if target.rule == "py_library" and not target.testonly
        for src in target.srcs
        if src.startswith(package + "/")
    }
    assert python_files_in(package) == expected | programs


def names_of(requirements: list[str]) -> set[str]:
    """Returns the distributions that requirements name, as the lock spells them."""
    return {re.split(r"[^\w.-]", requirement)[0].replace("-", "_") for requirement in requirements}


def names_in(layer: Layer) -> set[str]:
    """Returns the names of a layer's packages and distributions."""
    return {*layer.packages} | {label.removeprefix("@pip//") for label in layer.distributions}


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_an_extra_of_a_wheel_brings_what_the_table_of_extras_lists(package: str) -> None:
    metadata, extras = metadata_of(package), EXTRAS.get(package, {})
    lines = metadata.get_all("Requires-Dist", [])
    required = {
        extra: names_of([line for line in lines if line.endswith(f"extra == '{extra}'")]) - names_in(always(package))
        for extra in metadata.get_all("Provides-Extra", [])
    }
    expected = {extra: names_in(layer) for extra, layer in extras.items()}
    if len(extras) > 1:
        expected["all"] = set().union(*expected.values())
    assert required == expected


def test_errors_name_the_extras_of_the_wheel() -> None:
    """`pip install 'tapeline[EXTRA]'` in an error message has to work."""
    assert set(metadata_of("tapeline").get_all("Provides-Extra", [])) == {*lang_core.EXTRAS, "all"}


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_a_wheel_requires_its_layer(package: str) -> None:
    """Checks that a wheel requires its own version of our packages, and of others what the layer table lists."""
    metadata = metadata_of(package)
    requires = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert names_of(requires) == names_in(always(package))
    own = {re.sub(r"\[.*?\]", "", line) for line in requires}
    assert own >= {f"{below}=={metadata['Version']}" for below in always(package).packages}
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Name"] == package


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_a_wheel_names_no_licence_while_none_is_chosen(package: str) -> None:
    """The page docs/third-party.md says so; whoever chooses one changes both."""
    metadata = metadata_of(package)
    assert not [name for name in metadata if name.startswith("License")]
    assert not [value for value in metadata.get_all("Classifier", []) if value.startswith("License")]
    assert not (workspace_root() / "LICENSE").exists()
    assert "no licence has been chosen" in (workspace_root() / "docs/third-party.md").read_text()


def test_the_version_is_the_same_everywhere() -> None:
    assert len({metadata_of(package)["Version"] for package in LAYERS}) == 1
