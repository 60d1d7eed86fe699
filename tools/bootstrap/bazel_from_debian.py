#!/usr/bin/env python3
"""Installs Bazel from Debian packages, for machines that reach Debian's mirror but not GitHub.

Elsewhere use Bazelisk: it reads .bazelversion and needs none of this. //:bazelw calls it as

    PYTHONPATH=ROOT python3 -m tools.bootstrap.bazel_from_debian --prefix DIR [--version 7.7.1]

Unpacks Debian testing's bazel-bootstrap with the libraries it is linked against and a JRE into a
private prefix, and makes its executables load their libraries from there. No package of the host
is installed, upgraded or configured, nothing outside the prefix's folder is written, and root is
not needed. Only Bazel itself sees the prefix: build actions run with the host's own programs and
libraries. DIR/bazel is what to run. Two of these at once are safe: the second waits for the first.
"""

import argparse
import base64
import hashlib
import os
import re
import shutil
import struct
import sys
from pathlib import Path

from tools.bootstrap.debian import Apt, InstallError, install, run, unpack

SUITE = "forky"
ARCHITECTURE = "amd64"
LIBDIR = "usr/lib/x86_64-linux-gnu"

# libblake3-0: Bazel's JNI library needs it, though its package does not say so.
ROOTS = ["bazel-bootstrap", "bazel-bootstrap-data", "libblake3-0", "patchelf"]
# Java libraries that Debian keeps out of Bazel's own jar.
_JAVA_LIBRARIES = """caffeine commons-compress commons-io commons-lang3 commons-pool2 diffutils google-auth
    google-auto-value google-flogger google-gson google-http-client grpc jsr305 perfmark reactive-streams rx xz"""
ROOTS += [f"lib{name}-java" for name in _JAVA_LIBRARIES.split()]
# In use, but absent from Debian's list of jars.
EXTRA_JARS = ["perfmark-api.jar", "commons-lang3.jar"]
# Bazel 7.7 is compiled for Java 21; the first that the suite has is taken.
JRES = ["openjdk-21-jre-headless", "openjdk-25-jre-headless"]
# Shared libraries carry ABI numbers in their names, so they are found by following Depends.
FOLLOW = re.compile(r"(libc6|libgcc-s1|libstdc\+\+6|zlib1g|lib(absl|grpc|proto|cares|re2|ssl|zstd1).*)$")

# Repositories that WORKSPACE and Bazel's own defaults take from GitHub: package, folder.
REPOS = {
    "bazel_features": ("bazel-features", "tools/features"),
    "bazel_skylib": ("bazel-skylib", "tools/skylib"),
    "platforms": ("bazel-platforms", "tools/platforms"),
    "rules_cc": ("bazel-rules-cc", "rules/cc"),
    "rules_java": ("bazel-rules-java", "rules/java"),
    "rules_license": ("bazel-rules-license", "rules/license"),
    "rules_proto": ("bazel-rules-proto", "rules/proto"),
    "rules_python": ("bazel-rules-python", "rules/python"),
    "rules_shell": ("bazel-rules-shell", "rules/shell"),
}
# Only `bazel query` looks at these, on its way through the dependencies of Bazel's own tools.
STUBS = {
    "remote_coverage_tools": """package(default_visibility = ["//visibility:public"])
[filegroup(name = n) for n in ["coverage_report_generator", "lcov_merger"]]
""",
    "zlib": 'cc_library(name = "zlib", visibility = ["//visibility:public"])\n',
}
# py_wheel runs this; Debian leaves rules_python's tools out.
TOOLS_BUILD = """load("//python:defs.bzl", "py_binary")
py_binary(name = "wheelmaker", srcs = ["wheelmaker.py"], visibility = ["//visibility:public"])
"""


def java_key_store(pem: str) -> bytes:
    """A Java key store with the certificates of a PEM bundle: Bazel then trusts what the host does.

    The format is the JDK's own "JKS", version 2 (sun.security.provider.JavaKeyStore).
    """

    def utf(text: str) -> bytes:
        return struct.pack(">H", len(text)) + text.encode()

    certificates = re.findall("-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", pem, re.DOTALL)
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for i, certificate in enumerate(certificates):
        der = base64.b64decode(certificate)
        body += struct.pack(">I", 2) + utf(f"ca{i}") + struct.pack(">Q", 0) + utf("X.509")
        body += struct.pack(">I", len(der)) + der
    return body + hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def prepare_java(root: Path) -> Path:
    """Makes the JRE under ``root`` complete in itself, and returns its home."""
    home = next(p for p in (root / "usr/lib/jvm").glob("java-*-openjdk-*") if not p.is_symlink())
    for link in list(home.rglob("*")):  # /etc/java-21-openjdk/...: the prefix's, not the host's
        if link.is_symlink() and os.readlink(link).startswith("/etc/java"):
            target = root / os.readlink(link).lstrip("/")
            link.unlink()
            shutil.copy2(target, link)
    bundle = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    store = home / "lib/security/cacerts"
    store.unlink(missing_ok=True)
    store.write_bytes(java_key_store(bundle.read_text() if bundle.exists() else ""))
    return home


def patch_executables(root: Path, final: Path, java: Path) -> None:
    """Lets the executables under ``root`` find loader and libraries once ``root`` has become ``final``."""
    libs, loader = root / LIBDIR, "ld-linux-x86-64.so.2"
    patchelf = [libs / loader, "--library-path", libs, root / "usr/bin/patchelf"]
    executables = [root / "usr/bin/bazel", java / "bin/java", java / "lib/jspawnhelper"]
    for executable in executables + list((root / "usr/libexec/x86_64-linux-gnu/bazel").iterdir()):
        rpath = f"{final / LIBDIR}:$ORIGIN/../lib" if executable.name == "java" else final / LIBDIR
        # RPATH, not RUNPATH: it has to hold for the libraries' own libraries, and for JNI.
        run(*patchelf, "--force-rpath", "--set-rpath", rpath, executable)
        run(*patchelf, "--set-interpreter", final / LIBDIR / loader, executable)


def add_missing_parts(share: Path) -> dict[str, str]:
    """Adds what Debian leaves out of ``share``; returns {repository: folder in share} for all of them."""
    tools = share / "rules/python/tools"
    if not tools.exists():
        tools.mkdir()
        (tools / "BUILD.bazel").write_text(TOOLS_BUILD)
        shutil.copy(Path(__file__).with_name("wheelmaker.py"), tools)
    for name, build in STUBS.items():
        stub = share / "stubs" / name
        stub.mkdir(parents=True)
        (stub / "WORKSPACE").touch()
        (stub / "BUILD.bazel").write_text(build)
    return {name: folder for name, (_, folder) in REPOS.items()} | {name: f"stubs/{name}" for name in STUBS}


def assemble(root: Path, final: Path) -> str:
    """Makes the packages unpacked under ``root`` work once ``root`` has become ``final``.

    Returns:
        The version of Bazel.
    """
    share = root / "usr/share/bazel"
    java = prepare_java(root)
    patch_executables(root, final, java)

    version = (share / "build-label.txt").read_text().strip()
    stamp = root / "usr/share/bazel-stamp"  # without it Bazel calls itself "development version"
    stamp.mkdir()
    (stamp / "build-data.properties").write_text(f"build.label={version}\n")
    listing = share / "bazel_classpath_debian_depends.txt"
    jars = [line.rsplit("/", 1)[1] for line in listing.read_text().split()] + EXTRA_JARS
    paths = [f"{final}/usr/share/java/{j}" for j in jars if (root / "usr/share/java" / j).exists()]
    listing.write_text("\n".join([*paths, f"{final}/usr/share/bazel-stamp"]) + "\n")

    rc = [
        f"startup --install_base={final}/usr/share/bazel",
        "startup --trust_install_base",
        f"startup --server_javabase={final / java.relative_to(root)}",
    ]
    for name, folder in sorted(add_missing_parts(share).items()):
        rc.append(f"common --override_repository={name}={final}/usr/share/bazel/{folder}")
    (root / "bazelrc").write_text("\n".join(rc) + "\n")
    launcher = root / "bazel"
    launcher.write_text(f'#!/bin/sh\nexec "{final}/usr/bin/bazel" --nosystem_rc --bazelrc="{final}/bazelrc" "$@"\n')
    launcher.chmod(0o755)
    return version


def unpack_and_assemble(root: Path, final: Path, wanted: str) -> None:
    """Fills ``root`` with an installation of Bazel ``wanted`` that works once it is named ``final``."""
    if run("dpkg", "--print-architecture").strip() != ARCHITECTURE:
        raise InstallError(f"only Debian's {ARCHITECTURE} packages are known to work")
    apt = Apt(root.parent / "apt", SUITE)
    apt.update()
    jre = next(iter(j for j in JRES if j in apt.depends(JRES)), None)
    if jre is None:
        raise InstallError(f"Debian {SUITE} has neither {' nor '.join(JRES)}")
    packages = apt.closure([*ROOTS, *(package for package, _ in REPOS.values())], FOLLOW)
    unpack(apt, [*packages, jre], root)
    for part in ("usr/share/maven-repo", LIBDIR + "/gconv"):
        shutil.rmtree(root / part, ignore_errors=True)
    version = assemble(root, final)
    if version.split(".")[0] != wanted.split(".")[0]:
        raise InstallError(f"Debian {SUITE} has Bazel {version}, and this repository needs {wanted}")


def main(argv: list[str]) -> int:
    """Installs as the flags say; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, required=True, help="the folder to make; its file bazel is the program")
    parser.add_argument("--version", default="7.7.1", help="the Bazel that is needed; its major version has to match")
    args = parser.parse_args(argv)
    final = args.prefix.absolute()
    if re.search(r'[\s"$`\\]', str(final)):
        print(f"The path {final} has a space or another character that Bazel's rc file cannot hold", file=sys.stderr)
        return 1
    try:
        print(f"Installing Bazel {args.version} from Debian {SUITE} into {final}", flush=True)
        install(final, lambda root: unpack_and_assemble(root, final, args.version))
    except (InstallError, OSError) as error:
        print(f"Bazel could not be installed from Debian: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
