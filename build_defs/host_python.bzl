"""The interpreter of the machine, used both to install wheels and to run Python targets.

Without this, rules_python would install wheels with the first python3 of the user's PATH, and
run targets with the first one of the actions' PATH, which may be of another version.

Targets run with -S: what is installed beside the interpreter is out of their sight, so that a dependency
that is not declared is missing here as it is everywhere else.
"""

_RUNTIME_BUILD = """
load("@rules_python//python:defs.bzl", "py_runtime", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

py_runtime(
    name = "runtime",
    interpreter_path = "{path}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _host_python_impl(rctx):
    wanted = rctx.os.environ.get("TAPELINE_PYTHON")
    tried = []
    for name in [wanted] if wanted else rctx.attr.names:
        found = rctx.path(name) if "/" in name else rctx.which(name)
        if not found:
            continue
        result = rctx.execute([found, "-c", "import sys; print(sys.executable, *sys.version_info[:2])"])
        if result.return_code:
            tried.append("%s (%s)" % (found, result.stderr.strip()))
            continue
        path, major, minor = result.stdout.strip().split(" ")
        if (int(major), int(minor)) < (3, rctx.attr.minor):
            tried.append("%s (%s.%s)" % (path, major, minor))
            continue
        rctx.file("python3", "#!/bin/sh\nexec '%s' -S \"$@\"\n" % path)
        rctx.file("BUILD.bazel", _RUNTIME_BUILD.format(path = rctx.path("python3")))
        rctx.file("defs.bzl", "interpreter = %r\nversion = %r\n" % (path, major + "." + minor))
        return
    fail("Python 3.%d or later is needed; found %s. Set TAPELINE_PYTHON to its path." % (
        rctx.attr.minor,
        ", ".join(tried) or "none",
    ))

host_python = repository_rule(
    implementation = _host_python_impl,
    doc = "Finds the machine's Python: //:toolchain for targets, //:defs.bzl with its path for WORKSPACE.",
    attrs = {
        "minor": attr.int(default = 11, doc = "The oldest 3.x to accept."),
        "names": attr.string_list(
            default = ["python3.11", "python3"],
            doc = "Programs to try, first match first; TAPELINE_PYTHON overrides them.",
        ),
    },
    configure = True,
    environ = ["TAPELINE_PYTHON", "PATH"],
    local = True,
)

_WHEEL_BUILD = """
load("@rules_python//python:defs.bzl", "py_library")

package(default_visibility = ["//visibility:public"])

py_library(
    name = "lib",
    srcs = glob(["**/*.py"]),
    data = glob(
        ["**/*"],
        exclude = ["**/*.py", "**/*.pyc", "**/* *", "**/*.dist-info/RECORD", "BUILD.bazel", "WORKSPACE"],
    ),
    imports = ["."],
)
"""

def _host_pip_wheel_impl(rctx):
    python = rctx.attr.interpreter
    rctx.file("requirement.txt", "%s --hash=sha256:%s\n" % (rctx.attr.requirement, rctx.attr.sha256))
    download = rctx.execute([
        python,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--requirement=requirement.txt",
        "--dest=wheel",
    ])
    if download.return_code:
        fail("%s -m pip could not download %s (does this Python have pip?):\n%s" % (
            python,
            rctx.attr.requirement,
            download.stderr,
        ))
    wheels = [p for p in rctx.path("wheel").readdir() if p.basename.endswith(".whl")]
    rctx.symlink(wheels[0], "wheel.zip")  # extract() goes by the name's end
    rctx.extract("wheel.zip")
    rctx.delete("wheel.zip")
    rctx.delete("wheel")
    rctx.file("BUILD.bazel", _WHEEL_BUILD)

host_pip_wheel = repository_rule(
    implementation = _host_pip_wheel_impl,
    doc = "A pure-Python wheel as //:lib, fetched by the machine's pip from wherever that is set up to look.",
    attrs = {
        "interpreter": attr.string(mandatory = True, doc = "Path of the Python whose pip downloads."),
        "requirement": attr.string(mandatory = True, doc = "name==version"),
        "sha256": attr.string(mandatory = True, doc = "Of the wheel."),
    },
)
