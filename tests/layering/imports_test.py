"""Every import of every file of the tree keeps to the layer table."""

import functools
import sys

import pytest

import lang_core
from tests.layering._build_files import distribution_label, targets_of
from tests.layering._layers import BEHIND_EXTRAS, LAYERS, TEST_DISTRIBUTIONS, always, extra_of
from tests.layering._sources import TOP_LEVEL, Import, imports_of, module_name, python_files, workspace_root

ROOT = workspace_root()
FILES = python_files(ROOT)
MODULES = frozenset(module_name(path) for path in FILES)
TESTONLY = frozenset(src for target in targets_of(ROOT) if target.testonly for src in target.srcs)


@functools.cache
def imports(path: str) -> list[Import]:
    return imports_of((ROOT / path).read_text(), MODULES)


def package_of(path: str) -> str:
    return path.split("/")[0]


def is_test(path: str) -> bool:
    return path.endswith("_test.py") or path in TESTONLY


def test_the_tree_is_there() -> None:
    assert set(LAYERS) <= {package_of(path) for path in FILES}
    assert "tests/layering/imports_test.py" in FILES


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_packages_import_only_the_layers_below(package: str) -> None:
    allowed = LAYERS[package].packages | {package}
    wrong = [
        f"{path}:{i.line}: {package} may not import {i.module}"
        for path in FILES
        if package_of(path) == package
        for i in imports(path)
        if i.module.split(".")[0] in TOP_LEVEL and i.module.split(".")[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_packages_import_only_their_third_party_packages(package: str) -> None:
    wrong = []
    for path in FILES:
        if package_of(path) != package:
            continue
        allowed = LAYERS[package].distributions | (TEST_DISTRIBUTIONS if is_test(path) else frozenset())
        for i in imports(path):
            top = i.module.split(".")[0]
            if top in TOP_LEVEL or top in sys.stdlib_module_names or distribution_label(i.module) in allowed:
                continue
            wrong.append(f"{path}:{i.line}: {package} may not import {i.module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_only_modules_behind_an_extra_import_what_it_brings(package: str) -> None:
    """Checks that what is installed without extras imports neither their packages nor the modules that import these."""
    base = always(package)
    wrong = []
    for path in FILES:
        module = module_name(path)
        if package_of(path) != package or is_test(path) or extra_of(module) is not None:
            continue
        for i in imports(path):
            top = i.module.split(".")[0]
            is_own = top == package or top in base.packages
            is_there = top in sys.stdlib_module_names or is_own or distribution_label(i.module) in base.distributions
            if not i.typing and not (is_there and extra_of(i.module) is None):
                wrong.append(
                    f"{path}:{i.line}: {i.module} comes with an extra: load it by lang_core.load_extra, or list "
                    f"{module} in BEHIND_EXTRAS of tests/layering/_layers.py"
                )
    assert not wrong, "\n".join(wrong)


def test_what_is_behind_an_extra_is_there() -> None:
    assert set(BEHIND_EXTRAS) <= MODULES
    assert set(BEHIND_EXTRAS.values()) <= set(lang_core.EXTRAS)


def test_no_import_stands_in_a_function() -> None:
    wrong = [f"{path}:{i.line}: import of {i.module} in a function" for path in FILES for i in imports(path) if i.local]
    assert not wrong, "\n".join(wrong)


def test_private_modules_stay_in_their_package() -> None:
    """`a._b` is imported by files below `a` only; tests may share `a._b` if it is testonly."""
    wrong = []
    for path in FILES:
        for i in imports(path):
            parts = i.module.split(".")
            private = next((n for n, part in enumerate(parts) if part.startswith("_") and part != "__future__"), None)
            shared = is_test(path) and "/".join(parts) + ".py" in TESTONLY
            if private is not None and parts[0] in LAYERS and parts[0] != package_of(path) and not shared:
                wrong.append(f"{path}:{i.line}: {i.module} is private to {'.'.join(parts[:private])}")
    assert not wrong, "\n".join(wrong)
