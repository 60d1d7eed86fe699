import dataclasses
import os
import signal
import stat
import threading
import time
import zipfile
from pathlib import Path

import pytest

from lang_core import CompileError
from run_iree._device_testing import STEP
from run_iree.compiler import _compile
from run_iree.compiler._compile import compile_module
from run_iree.compiler._targets import target_named
from run_iree.devices import TARGETS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "module.mlir"
    path.write_text(STEP)
    return path


@pytest.mark.parametrize("target", TARGETS)
def test_generic_form_compiles_for_every_target(source: Path, tmp_path: Path, target: str) -> None:
    output = tmp_path / "m.vmfb"
    report = compile_module(source, output, target)
    assert zipfile.is_zipfile(output)
    assert report.vmfb_bytes == output.stat().st_size
    assert report.flags == target_named(target).flags
    assert 0 < report.seconds < 600
    assert 10**7 < report.peak_rss_bytes < 10**10
    assert stat.S_IMODE(output.stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.vmfb", "module.mlir"]


def test_a_generic_cpu_and_further_flags(source: Path, tmp_path: Path) -> None:
    report = compile_module(
        source, tmp_path / "m.vmfb", target_named("llvm-cpu", cpu="generic"), extra_flags=["--iree-opt-level=O0"]
    )
    assert "--iree-llvmcpu-target-cpu=generic" in report.flags
    assert report.flags[-1] == "--iree-opt-level=O0"


def test_an_error_names_the_op_and_its_module(source: Path, tmp_path: Path) -> None:
    source.write_text(STEP.replace("contracting_dims = [1] x [1]", "contracting_dims = [0] x [1]"))
    with pytest.raises(
        CompileError,
        match=r"cannot compile '.*module\.mlir' for vmvx: contracting dimension sizes must match for lhs/rhs "
        r"\(at .*module\.mlir:8, op stablehlo\.dot_general of module layers\.0\)",
    ):
        compile_module(source, tmp_path / "m.vmfb", "vmvx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["module.mlir"]


def test_vmvx_refuses_f16_arithmetic_and_says_where(tmp_path: Path) -> None:
    source = tmp_path / "half.mlir"
    source.write_text("""module @m {
  func.func public @main(%x: tensor<3x5xf16>) -> tensor<3x5xf16> {
    // layers.1.mlp
    %y = stablehlo.add %x, %x : tensor<3x5xf16>
    return %y : tensor<3x5xf16>
  }
}
""")
    with pytest.raises(CompileError, match=r"for vmvx: .*half\.mlir:4, op stablehlo\.add of module layers\.1\.mlp\)"):
        compile_module(source, tmp_path / "m.vmfb", "vmvx")


def test_a_syntax_error(source: Path, tmp_path: Path) -> None:
    source.write_text(STEP[: len(STEP) // 2])
    with pytest.raises(CompileError, match=r"cannot compile .* for cuda: .*\(at .*module\.mlir:\d+, op "):
        compile_module(source, tmp_path / "m.vmfb", "cuda")


def test_a_flag_that_the_compiler_does_not_know(source: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"exit status 1; its last messages: .*--no-such-flag"):
        compile_module(source, tmp_path / "m.vmfb", "vmvx", extra_flags=["--no-such-flag"])


def test_missing_files(source: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"cannot compile '.*no\.mlir': file not found"):
        compile_module(tmp_path / "no.mlir", tmp_path / "m.vmfb", "vmvx")
    with pytest.raises(CompileError, match=r"cannot write '.*m\.vmfb': directory '.*none' not found; create it first"):
        compile_module(source, tmp_path / "none" / "m.vmfb", "vmvx")


def _script(folder: Path, body: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("name", "hint"), [("SEGV", "its last messages: about to die"), ("KILL", "out of memory")])
def test_a_compiler_that_crashes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, hint: str
) -> None:
    script = _script(tmp_path, f"echo about to die >&2; kill -{name} $$")
    monkeypatch.setattr(_compile, "compiler_path", lambda: script)
    with pytest.raises(CompileError, match=f"the compiler was ended by SIG{name}.*{hint}"):
        compile_module(source, tmp_path / "m.vmfb", "vmvx")
    assert not list(tmp_path.glob(".m.vmfb*"))


@pytest.mark.parametrize(
    ("ending", "runs", "message"),
    [
        ("exit 1", ["false", "true"], "its last messages: run 2"),
        ("kill -SEGV $$", ["false", "true"], "ended by SIGSEGV; its last messages: run 2"),
        ("kill -KILL $$", ["false"], "ended by SIGKILL; .*run 1"),
    ],
)
def test_a_compiler_that_fails_is_asked_again_with_its_checks(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, runs: list[str], message: str
) -> None:
    body = f'case "$*" in *--verify=false) says=false;; *) says=true;; esac; echo $says >> {tmp_path}/runs'
    script = _script(tmp_path, f"{body}\necho run $(wc -l < {tmp_path}/runs) >&2\n{ending}")
    monkeypatch.setattr(_compile, "compiler_path", lambda: script)
    with pytest.raises(CompileError, match=message):
        compile_module(source, tmp_path / "m.vmfb", "llvm-cpu")
    assert (tmp_path / "runs").read_text().split() == runs


def test_checks_change_nothing_of_what_is_made(source: Path, tmp_path: Path) -> None:
    made, target = tmp_path / "m.vmfb", target_named("llvm-cpu")
    modules = []
    for unchecked in ((), target.unchecked):
        compile_module(source, made, dataclasses.replace(target, unchecked=unchecked))
        modules.append(made.read_bytes())
    assert target.unchecked
    assert modules[0] == modules[1]


def test_the_peak_of_the_compiler_is_without_the_memory_of_this_process(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = _script(tmp_path, "sleep 0.5; exit 1")
    monkeypatch.setattr(_compile, "compiler_path", lambda: script)
    held = b"x" * (1 << 28)  # which a child that is only just forked shares
    _, peak, _ = _compile._run([str(script)], tmp_path)
    assert 0 < peak < len(held) // 4


def test_an_interrupt_ends_the_compiler(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = _script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    monkeypatch.setattr(_compile, "compiler_path", lambda: script)

    main = threading.main_thread().ident
    assert main is not None

    def interrupt(main: int = main) -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        compile_module(source, tmp_path / "m.vmfb", "vmvx")
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not list(tmp_path.glob(".m.vmfb*"))


def test_the_result_does_not_know_where_it_was_made(source: Path, tmp_path: Path) -> None:
    made = []
    for name in ("here", "elsewhere"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / source.name).write_text(source.read_text())
        compile_module(folder / source.name, folder / "m.vmfb", "vmvx")
        made.append((folder / "m.vmfb").read_bytes())
    assert made[0] == made[1]
    assert str(tmp_path).encode() not in made[0]


def test_large_texts_are_compiled_in_two_processes_to_the_same_bytes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_named("llvm-cpu")
    once, twice = tmp_path / "once" / "m.vmfb", tmp_path / "twice" / "m.vmfb"
    runs: list[list[str]] = []
    run = _compile._run
    monkeypatch.setattr(_compile, "_run", lambda command, folder: (runs.append(command), run(command, folder))[1])
    monkeypatch.setattr(_compile.os, "sched_getaffinity", lambda process: {0, 1})
    for output, large in ((once, 2**30), (twice, 0)):
        monkeypatch.setattr(_compile, "_LARGE", large)
        output.parent.mkdir()
        report = compile_module(source, output, target)
    assert ["--mlir-disable-threading" in command for command in runs] == [True, True, False]
    assert once.read_bytes() == twice.read_bytes()
    assert report.schedules
    assert report.peak_rss_bytes > 10**7
    assert [path.name for path in twice.parent.iterdir()] == ["m.vmfb"]
    source.write_text(STEP.replace("contracting_dims = [1] x [1]", "contracting_dims = [0] x [1]"))
    with pytest.raises(CompileError, match=r"for llvm-cpu: contracting dimension sizes .* op stablehlo\.dot_general"):
        compile_module(source, twice, target)
    assert [path.name for path in twice.parent.iterdir()] == ["m.vmfb"]


@pytest.mark.parametrize(
    ("op", "is_sum"),
    [
        ("%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<1x2xf32>)", True),
        ('%0 = "stablehlo.dot_general"(%a, %b) <{}> : (tensor<1x2xf32>)', True),
        ("%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f]", True),
        ("%0 = stablehlo.reduce(%a init: %b) applies stablehlo.add across dimensions = [1] : (tensor<1x2xf32>)", True),
        ("%0 = stablehlo.reduce(%a init: %b) across dimensions = [1] : (tensor<1x2xf32>)", True),
        ('%0 = "stablehlo.reduce"(%a, %b) <{dimensions = array<i64: 1>}> ({', True),
        ("%0 = stablehlo.custom_call @any(%a) : (tensor<1xf32>) -> tensor<1xf32>", True),
        ("%0 = stablehlo.reduce(%a init: %b) applies stablehlo.maximum across dimensions = [1] : (f32)", False),
        ("%0 = stablehlo.multiply %a, %b : tensor<1x2xf32>", False),
        ("%0 = flow.dispatch @packed_linear(%a, %b) : (tensor<1x2xf32>) -> tensor<1x2xf32>", False),
    ],
)
def test_ops_that_can_become_a_matrix_vector_product(op: str, is_sum: bool, tmp_path: Path) -> None:
    path = tmp_path / "module.mlir"
    path.write_text(f"module @m {{\n{op}\n}}\n")
    assert _compile._has_sums(path) is is_sum


def test_a_text_without_sums_is_compiled_on_all_threads_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "module.mlir"
    source.write_text(
        """module @m {
  func.func public @f(%a: tensor<16x32xf32>, %b: tensor<32xf32>) -> tensor<16xf32> {
    %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<32xf32>) -> tensor<16x32xf32>
    %1 = stablehlo.multiply %a, %0 : tensor<16x32xf32>
    %2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %3 = stablehlo.reduce(%1 init: %2) applies stablehlo.maximum across dimensions = [1]
      : (tensor<16x32xf32>, tensor<f32>) -> tensor<16xf32>
    return %3 : tensor<16xf32>
  }
}
""".replace("= [1]\n      :", "= [1] :")
    )
    runs: list[list[str]] = []
    run = _compile._run
    monkeypatch.setattr(_compile, "_run", lambda command, folder: (runs.append(command), run(command, folder))[1])
    outputs = []
    for name, has_sums in (("plain", False), ("tuned", True)):
        (tmp_path / name).mkdir()
        if has_sums:
            monkeypatch.setattr(_compile, "_has_sums", lambda text: True)
        compile_module(source, tmp_path / name / "m.vmfb", "llvm-cpu")
        outputs.append((tmp_path / name / "m.vmfb").read_bytes())
    assert ["--mlir-disable-threading" in command for command in runs] == [False, True]
    assert [any("tuning-spec" in flag for flag in command) for command in runs] == [False, True]
    assert outputs[0] == outputs[1]
