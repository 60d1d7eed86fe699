import multiprocessing
import re
import time
from pathlib import Path

import pytest

from tools.bootstrap import debian

FOLLOW = re.compile("lib.*")

URIS = """'http://one.example/debian-security/dists/stable-security/InRelease' one 0
'http://two.example/mirror/debian/dists/stable/InRelease' two 0
'http://three.example/debian/dists/stable/Release' three 0
"""

DEPENDS = """bazel-bootstrap
  Depends: libabsl20240722
 |Depends: libc6
  PreDepends: zlib1g
  Depends: <java-runtime>
    openjdk-21-jre-headless
<java-runtime>
  Depends: ignored-of-a-virtual-package
patchelf
  Depends: libstdc++6
"""


def test_the_mirror_is_the_first_that_serves_debian_itself() -> None:
    assert debian.mirror_in(URIS) == "http://two.example/mirror/debian"
    assert debian.mirror_in("") is None


def test_dependencies_are_read() -> None:
    assert debian.parse_depends(DEPENDS) == {
        "bazel-bootstrap": ["libabsl20240722", "libc6", "zlib1g", "ignored-of-a-virtual-package"],
        "patchelf": ["libstdc++6"],
    }


class FakeApt(debian.Apt):
    """Answers from a dictionary instead of a package list."""

    def __init__(self, answers: dict[str, list[str]]) -> None:
        self._answers = answers
        self._suite = "forky"

    def depends(self, packages: object) -> dict[str, list[str]]:
        assert isinstance(packages, list)
        return {p: self._answers[p] for p in packages if p in self._answers}


def test_shared_libraries_are_followed_and_other_dependencies_are_not() -> None:
    apt = FakeApt({"bazel": ["libabsl1", "python3"], "libabsl1": ["libc6"], "libc6": ["libabsl1"]})
    assert apt.closure(["bazel"], FOLLOW) == ["bazel", "libabsl1", "libc6"]


def test_what_the_machine_has_is_left_out_with_its_dependencies() -> None:
    apt = FakeApt({"driver": ["libdrm2", "libelf1"], "libdrm2": ["libdrm-common"], "libelf1": ["libz1"], "libz1": []})
    assert apt.closure(["driver"], FOLLOW, {"libdrm2"}) == ["driver", "libelf1", "libz1"]


def test_alternatives_that_the_suite_lacks_are_passed_over() -> None:
    apt = FakeApt({"driver": ["libelf1t64", "libelf1"], "libelf1": []})
    assert apt.closure(["driver"], FOLLOW) == ["driver", "libelf1"]


def test_a_package_that_the_suite_lacks_is_named() -> None:
    with pytest.raises(debian.InstallError, match="Debian forky has no bazel, patchelf"):
        FakeApt({}).closure(["patchelf", "bazel"], FOLLOW)


def test_a_failing_program_is_an_error_with_its_last_words() -> None:
    with pytest.raises(debian.InstallError, match=r"`sh -c` failed with exit code 3:\nno such suite"):
        debian.run("sh", "-c", "echo no such suite >&2; exit 3")


def build_slowly(root: Path) -> None:
    (root / "half").touch()
    time.sleep(0.5)
    (root / "bazel").touch()


def install_and_record(final: Path, record: Path) -> None:
    built = debian.install(final, build_slowly)
    record.write_text(f"{built} {(final / 'bazel').exists()}")


def test_two_at_once_build_once_and_both_find_the_whole(tmp_path: Path) -> None:
    final, records = tmp_path / "cache/bazel", [tmp_path / "0", tmp_path / "1"]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=install_and_record, args=(final, record)) for record in records]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(record.read_text() for record in records) == ["False True", "True True"]
    assert sorted(p.name for p in final.parent.iterdir()) == ["bazel", "bazel.lock"]


def test_an_installation_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def fail(root: Path) -> None:
        (root / "half").touch()
        raise debian.InstallError("the network is gone")

    with pytest.raises(debian.InstallError, match="the network is gone"):
        debian.install(tmp_path / "bazel", fail)
    assert [p.name for p in tmp_path.iterdir()] == ["bazel.lock"]
