"""Entry point of every py_pytest_test: runs pytest on the files named in argv."""

import contextlib
import dataclasses
import gc
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

# A warning is an error in a test of this repository, wherever it is raised from our own calls. What other
# people's packages do while they are imported is theirs.
_WARNINGS = [
    "error",
    "ignore::DeprecationWarning:importlib._bootstrap",
    # JAX compiles a program whose entry another process writes at this moment, and warns.
    "ignore:Error reading persistent compilation cache entry",
    "ignore:Error writing persistent compilation cache entry",
]


class _EveryFileCollects:
    """Remembers the named files in which pytest found no test: a run must not pass without them."""

    def __init__(self, files: Sequence[str]) -> None:
        self.silent = {os.path.realpath(f) for f in files}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.silent -= {os.path.realpath(item.path) for item in items}


class _SeldomCollectsGarbage:
    """Searches for cycles less often, and never among what was there before the first test: modules, for the most part.

    Recorded graphs and syntax trees are many objects that live; searching them again and again was a tenth of the time
    of tests that record, and a third of those that read the sources.
    """

    def pytest_collection_finish(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


class _SharesModules:
    """Keeps the modules that the IREE compiler returns in one folder for all test targets and all runs of a machine.

    A module is found by the product's own key: text, flags, CPU and version of the compiler, and by the sources of
    ``run_iree.compiler``: after an edit of these, everything is compiled again. The tests of the compiler's calls and
    of damaged caches always compile. Processes that tests start have the product's own cache, in a folder beside this
    one that ``shared_modules`` of ``tests/product/_modules.py`` gives them.

    Args:
        directory: folder below which each user has a folder of modules.
    """

    _COMPILER = "run_iree.compiler._compile"
    _BOUND = 2**28  # bytes; a module of a test has 200 KB
    _COMPILING = ("run_iree/compiler/", "tests/integrity/faults_test.py", "tests/integrity/trust_test.py")

    def __init__(self, directory: Path) -> None:
        self._folder = directory / f"tapeline-tests-{os.geteuid()}" / "modules"

    def pytest_collection_finish(self) -> None:
        if (run_iree := importlib.util.find_spec("run_iree")) and run_iree.origin:
            sources = Path(run_iree.origin).parent / "compiler"
            digest = _digest_of(sources)
            os.environ["TAPELINE_TEST_MODULES"] = str(self._folder.with_name(f"processes-{digest[:12]}"))
            # An export imports it late. Targets that compile nothing may lack it, or what it imports.
            if "tapeline" in sys.modules and (sources / "_compile.py").exists():
                with contextlib.suppress(ImportError):
                    importlib.import_module(self._COMPILER)
        if (compiler := sys.modules.get(self._COMPILER)) is not None:
            self._share(compiler)

    def _share(self, compiler: Any) -> None:
        cache = compiler.ModuleCache(self._folder, self._BOUND)
        try:
            cache.fetch("0", self._folder / "none")  # refuses a folder that another user can write
        except sys.modules["lang_core"].InputError as error:
            print(f"compiled modules are not shared: {error}", file=sys.stderr)
            return
        sources, job = _digest_of(Path(compiler.__file__).parent), compiler._Compilation
        compile_anew = job.run

        def run(compilation: Any) -> Any:
            if compilation.dumps or os.environ.get("PYTEST_CURRENT_TEST", "").startswith(self._COMPILING):
                return compile_anew(compilation)
            key = hashlib.sha256(f"{sources} {compilation._key()}".encode()).hexdigest()
            if (facts := cache.fetch(key, compilation.output)) is not None:
                schedules = {name: compiler.Schedule(**fields) for name, fields in facts["schedules"].items()}
                return compiler.CompileReport(**{**facts, "flags": tuple(facts["flags"]), "schedules": schedules})
            report = compile_anew(compilation)
            cache.store(key, compilation.output, dataclasses.asdict(report))
            return report

        job.run = run


class _SharesPrograms:
    """Keeps what XLA compiles for JAX in one folder for all test targets and all runs of a machine.

    JAX's own key is version, flags, devices and program, without its metadata, so tests that read names of scopes in
    compiled programs always compile. JAX is configured before the first test after its import; processes that tests
    start compile for themselves, as JAX leaves half an entry if a process is killed while it writes one.

    Args:
        directory: folder below which each user has a folder of programs.
    """

    _BOUND = 2**28  # bytes; a program has 20 KB
    _COMPILING = ("autotune/",)

    def __init__(self, directory: Path) -> None:
        self._folder = directory / f"tapeline-tests-{os.geteuid()}" / "programs"
        self._configured = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if not self._configured and "jax" in sys.modules and not item.nodeid.startswith(self._COMPILING):
            self._configured = True
            self._share(sys.modules["jax"])

    def _share(self, jax: Any) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self._folder, self._folder.parent):
            facts = folder.lstat()
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                print(f"compiled programs are not shared: another user can write {folder}", file=sys.stderr)
                return
        self._evict()
        jax.config.update("jax_compilation_cache_dir", str(self._folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        importlib.import_module("jax.experimental.compilation_cache.compilation_cache").reset_cache()

    def _evict(self) -> None:
        """Removes the oldest programs if all together have more bytes than the bound."""
        sizes = {}
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another target removes it
                facts = path.stat()
                sizes[path] = (facts.st_mtime_ns, facts.st_size)
        excess = sum(size for _, size in sizes.values()) - self._BOUND
        for path in sorted(sizes, key=sizes.__getitem__):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= sizes[path][1]


def _digest_of(package: Path) -> str:
    """Returns the digest of a package's sources, without its tests."""
    sources = sorted(path for path in package.glob("*.py") if not path.name.endswith("_test.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def pytest_args(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command line of pytest for the files and flags in argv, under Bazel's test environment."""
    args = ["-p", "no:cacheprovider", "--import-mode=importlib", "-ra", "--strict-markers"]
    # Folders above a test may lack their __init__.py here. Without this, a test in a folder gguf would be imported as a
    # part of the package gguf of somebody else.
    args += ["-o", "consider_namespace_packages=true"]
    # Where there is no sandbox, pytest finds the pyproject.toml of the whole tree, which has the tree on the path.
    args += ["-o", "pythonpath="]
    for rule in _WARNINGS:
        args += ["-W", rule]
    if "XML_OUTPUT_FILE" in environ:
        args.append("--junitxml=" + environ["XML_OUTPUT_FILE"])
    if only := environ.get("TESTBRIDGE_TEST_ONLY"):  # bazel test --test_filter
        args += ["-k", only]
    return args + list(argv)


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs pytest on the files in argv.

    Args:
        argv: test files and further pytest flags.
        environ: the environment; Bazel's XML_OUTPUT_FILE, TESTBRIDGE_TEST_ONLY and TEST_TMPDIR are used, and
            TAPELINE_TEST_CACHE: folder below which compiled modules are kept for other targets and runs.

    Returns:
        pytest's exit code; 1 also where a named file holds no test. Under a filter, a target none of
        whose tests match has passed.
    """
    # Hypothesis then draws the same examples every time and has no deadlines: a result that Bazel keeps must
    # not depend on chance.
    os.environ.setdefault("CI", "true")
    # Mesa keeps compiled shaders below the home folder, and complains on stderr where it may not write there.
    if folder := environ.get("TEST_TMPDIR"):
        os.environ.setdefault("MESA_SHADER_CACHE_DIR", folder)
        # What a test compiles is recorded there, and is not compiled again by the programs that the test starts.
        os.environ.setdefault("XDG_CACHE_HOME", os.path.join(folder, "cache"))
        # Configurations that somebody tuned on this machine decide about nothing here.
        os.environ.setdefault("TAPELINE_KERNEL_CACHE", os.path.join(folder, "kernels"))
    # A test that compiles, compiles; those of the cache name a folder of their own.
    os.environ.setdefault("TAPELINE_MODULE_CACHE", "0")
    # Mesa's Vulkan on a CPU compiles each shader for a call or two; LLVM's optimisation is a third of that time.
    os.environ.setdefault("GALLIVM_PERF", "nopt")
    # What jax compiles runs once, on a few numbers.
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    # Plugins that happen to be installed beside the host's Python have no say here.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    collected = _EveryFileCollects([a for a in argv if a.endswith(".py")])
    plugins = [collected, _SeldomCollectsGarbage()]
    if folder := environ.get("TAPELINE_TEST_CACHE"):
        plugins += [_SharesModules(Path(folder)), _SharesPrograms(Path(folder))]
    code = int(pytest.main(pytest_args(argv, environ), plugins=plugins))
    if environ.get("TESTBRIDGE_TEST_ONLY"):
        return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and collected.silent:
        print(f"No test was collected from {', '.join(sorted(collected.silent))}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
