from pathlib import Path

from tests.layering.forbidden_edges import probe_label, refused, write_probes


def test_bazels_refusals_are_read() -> None:
    log = (
        "ERROR: /x/BUILD.bazel:2:11: in py_library rule //a/p:on_b: target '//b:b' is not visible from target "
        "'//a/p:on_b'. Check the visibility declaration\nERROR: Analysis of target '//a/p:on_b' failed\n"
    )
    assert refused(log) == {("//b:b", "//a/p:on_b")}


def test_probes_depend_on_what_they_are_named_after(tmp_path: Path) -> None:
    write_probes(tmp_path, [("lang_core", "compile_dag")])
    assert probe_label("lang_core", "compile_dag") == "//lang_core/layering_probe:on_compile_dag"
    build = (tmp_path / "lang_core/layering_probe/BUILD.bazel").read_text()
    assert 'py_library(name = "on_compile_dag", deps = ["//compile_dag"])' in build
