"""Every file is in a target, every test in a test target, and deps are what the sources import."""

import sys

import pytest

from tests.layering._build_files import Target, distribution_label, targets_of
from tests.layering._layers import LAYERS
from tests.layering._sources import TOP_LEVEL, imports_of, module_name, python_files, workspace_root

ROOT = workspace_root()
FILES = python_files(ROOT)
MODULES = {module_name(path): path for path in FILES}
TARGETS = targets_of(ROOT)
LABELS = {target.label: target for target in TARGETS}
OWNERS = {src: target.label for target in reversed(TARGETS) for src in target.srcs}


def deps_of_imports(target: Target, *, typing: bool) -> set[str]:
    """The labels that provide what the sources of ``target`` import, at run time or for types only."""
    needed = set()
    for src in target.srcs:
        for i in imports_of((ROOT / src).read_text(), frozenset(MODULES)):
            if i.typing != typing:
                continue
            top = i.module.split(".")[0]
            if top in TOP_LEVEL:
                module = i.module
                while module not in MODULES and "." in module:
                    module = module.rpartition(".")[0]
                needed.add(OWNERS.get(MODULES.get(module, ""), f"the missing target of {i.module}"))
            elif top not in sys.stdlib_module_names:
                needed.add(distribution_label(i.module))
    return needed - {target.label} - ({"@pip//pytest"} if target.rule != "py_library" else set())


def reached(label: str) -> set[str]:
    """Returns the labels that a target depends on through others."""
    labels, todo = set[str](), [label]
    while todo:
        deps = set(LABELS[label].deps) - labels if (label := todo.pop()) in LABELS else set[str]()
        labels |= deps
        todo += deps
    return labels


def given(target: Target) -> set[str]:
    """Returns the deps that the other deps of a target bring; libraries of the layers list them all the same."""
    package = target.label.removeprefix("//").split("/")[0].split(":")[0]
    if target.rule == "py_library" and package in LAYERS and not target.testonly:
        return set()
    sources = deps_of_imports(target, typing=False) | set(target.kept)
    return {dep for source in sources for dep in reached(source)}


def test_every_python_file_is_in_a_target() -> None:
    missing = [path for path in FILES if path not in OWNERS]
    assert not missing, "in no target of the BUILD.bazel file beside them:\n" + "\n".join(missing)


def test_every_test_file_is_run_by_a_test_target() -> None:
    run = {src for target in TARGETS if target.is_test for src in target.srcs}
    missing = [path for path in FILES if path.endswith("_test.py") and path not in run]
    assert not missing, "these tests never run, list them in a py_pytest_test:\n" + "\n".join(missing)


def test_every_source_of_a_target_exists() -> None:
    gone = [f"{t.label}: {src}" for t in TARGETS for src in t.srcs if not (ROOT / src).is_file()]
    assert not gone, "\n".join(gone)


@pytest.mark.parametrize("target", TARGETS, ids=[target.label for target in TARGETS])
def test_deps_are_what_the_sources_import(target: Target) -> None:
    """A dep that is missing may be there by luck, through another one; one too many hides the true picture."""
    brought = given(target)
    needed, declared = deps_of_imports(target, typing=False) - brought, set(target.deps)
    wrong = [f"deps lack {d}" for d in sorted(needed - declared)]
    surplus = declared - needed - (deps_of_imports(target, typing=True) - brought) - set(target.kept)
    wrong += [
        f"deps have {d}, which {'another dep brings' if d in brought else 'no source imports'}" for d in sorted(surplus)
    ]
    assert not wrong, f"{target.label} (line {target.line}): " + "; ".join(wrong)
