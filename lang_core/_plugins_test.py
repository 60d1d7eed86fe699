import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lang_core import ENCODINGS, ConfigError, PluginError, _packing, encoding_named, load_plugins, plugin_versions


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """Forgets which plugins were loaded, before and after."""
    load_plugins.cache_clear()
    yield
    load_plugins.cache_clear()


def _install(folder: Path, name: str, source: str) -> None:
    """Writes a package with the metadata that pip writes for a plugin."""
    (folder / f"{name}.py").write_text(source)
    metadata = folder / f"{name}-0.3.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.3\n")
    (metadata / "entry_points.txt").write_text(f"[tapeline.plugins]\n{name} = {name}\n")


def test_modules_of_installed_plugins_are_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "first_plugin", "import sys\nsys.loaded_plugins = getattr(sys, 'loaded_plugins', 0) + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "first_plugin" in load_plugins()
    assert load_plugins() == load_plugins()
    assert sys.__dict__.pop("loaded_plugins") == 1


def test_a_plugin_may_look_names_up_while_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "second_plugin", "from lang_core import encoding_named\nQ8 = encoding_named('q8_0')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "second_plugin" in load_plugins()


def test_versions_are_told_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "fifth_plugin", "import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert plugin_versions()["fifth_plugin"] == "fifth_plugin 0.3"


def test_a_plugin_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "third_plugin", "import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    message = (
        "plugin 'third_plugin' of third_plugin 0.3: importing third_plugin failed with ModuleNotFoundError: No module "
        "named 'no_such_module'; mend the package, or uninstall it"
    )
    with pytest.raises(PluginError, match=message):
        load_plugins()


def test_an_encoding_of_a_plugin_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from lang_core import LAYOUTS, register_encoding\nregister_encoding('acme_q8', LAYOUTS['q8_0'])\n"
    _install(tmp_path, "fourth_plugin", source)
    with pytest.raises(
        ConfigError, match=r"unknown encoding 'acme_q8': known are q8_0(, \w+){4} \.\.\. \(\d+ in all\)"
    ):
        encoding_named("acme_q8")
    load_plugins.cache_clear()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_packing, "_ENCODINGS", known := dict(ENCODINGS))
    monkeypatch.setattr(_packing, "ENCODINGS", known)
    assert encoding_named("acme_q8").block_bytes == encoding_named("q8_0").block_bytes
