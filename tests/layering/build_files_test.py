from pathlib import Path

import pytest

from tests.layering._build_files import Target, distribution_label, full_label, parse_targets, targets_of

BUILD = """
load("@rules_python//python:defs.bzl", "py_library")

package(default_visibility = ["//visibility:private"])

py_library(
    name = "_a",
    srcs = ["_a.py"],
    deps = [
        ":_b",
        "//lang_core",
        "//lang_core:_spec",
        "@pip//numpy",
        "@pip//tqdm",  # keep: started as a program
    ],
)

py_device_tests(
    name = "c_test",
    testonly = True,
    srcs = ["c_test.py"],
    deps = [":_a"] + select({
        "@local_devices//:has_cuda": ["@pip//jax"],
        "//conditions:default": [],
    }),
)

filegroup(name = "d", srcs = ["d.txt"])
"""


def test_python_targets_are_read() -> None:
    library, test = parse_targets(BUILD, "compile_dag/passes")
    assert library == Target(
        label="//compile_dag/passes:_a",
        rule="py_library",
        srcs=("compile_dag/passes/_a.py",),
        deps=("//compile_dag/passes:_b", "//lang_core:lang_core", "//lang_core:_spec", "@pip//numpy", "@pip//tqdm"),
        kept=("@pip//tqdm",),
        testonly=False,
        line=6,
    )
    assert not library.is_test
    assert test.is_test
    assert test.testonly
    assert test.deps == ("//compile_dag/passes:_a", "@pip//jax")


def test_targets_have_the_names_of_their_macros() -> None:
    calls = ("py_library()", "py_pytest_test()", "py_device_tests()", 'py_library(name = "testing")')
    names = [target.label for target in parse_targets("\n".join(calls), "lang_core/ops")]
    assert names == [f"//lang_core/ops:{name}" for name in ("ops", "tests", "device_tests", "testing")]


def test_a_tool_has_the_defaults_of_its_macro() -> None:
    tools = parse_targets('py_tool(name = "a")\npy_tool(name = "b", srcs = ["c.py"], deps = [":d"])', "tools")
    assert [(tool.srcs, tool.deps) for tool in tools] == [
        (("tools/a.py",), ("//tapeline/program:program",)),
        (("tools/c.py",), ("//tools:d",)),
    ]
    assert not any(tool.is_test for tool in tools)


def test_a_target_without_sources_has_those_of_its_folder() -> None:
    files = ("__init__.py", "_a.py", "_a_test.py", "_models_testing.py")
    library, tests, explicit = parse_targets("py_library()\npy_pytest_test()\npy_library(srcs = [])", "a/b", files)
    assert library.srcs == ("a/b/__init__.py", "a/b/_a.py")
    assert tests.srcs == ("a/b/_a_test.py",)
    assert explicit.srcs == ()


@pytest.mark.parametrize(
    ("label", "full"),
    [(":x", "//p/q:x"), ("x.py", "//p/q:x.py"), ("//a/b", "//a/b:b"), ("//a:c", "//a:c"), ("@pip//n", "@pip//n")],
)
def test_full_label(label: str, full: str) -> None:
    assert full_label(label, "p/q") == full


@pytest.mark.parametrize(
    ("module", "label"),
    [
        ("numpy.random", "@pip//numpy"),
        ("absl.flags", "@pip//absl_py"),
        ("iree.compiler.ir", "@pip//iree_base_compiler"),
        ("iree.runtime", "@pip//iree_base_runtime"),
    ],
)
def test_distribution_label(module: str, label: str) -> None:
    assert distribution_label(module) == label


def test_targets_of_a_tree_are_in_the_order_of_their_labels(tmp_path: Path) -> None:
    for package in ("b", "a", "bazel-out", ".hidden", "workspace"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "BUILD.bazel").write_text('py_library(name = "x", srcs = ["x.py"])')
    (tmp_path / "BUILD.bazel").write_text('py_library(name = "x", srcs = ["x.py"])')
    (tmp_path / "workspace" / "WORKSPACE").write_text("")
    assert [(t.label, t.srcs) for t in targets_of(tmp_path)] == [
        ("//:x", ("x.py",)),
        ("//a:x", ("a/x.py",)),
        ("//b:x", ("b/x.py",)),
    ]
