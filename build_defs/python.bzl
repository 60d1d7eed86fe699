"""The test and wheel macros that every package uses."""

load("@local_devices//:env.bzl", "VULKAN_ENV")
load("@rules_python//python:defs.bzl", "py_test", _py_binary = "py_binary", _py_library = "py_library")
load("@rules_python//python:packaging.bzl", "py_package", "py_wheel")
load("//build_defs:bytecode.bzl", "bytecode_of_deps")
load("//build_defs:version.bzl", "VERSION")

# BUILD files load one file.
py_binary = _py_binary

_MAIN = "//build_defs:pytest_main.py"

# local-sync runs what is compiled for local-task, in its process.
DEVICES = ["local-task", "vmvx", "vulkan", "cuda"]

# Devices that need a driver of the host: skipped (not failed) where @local_devices found none.
_DETECTED = ["vulkan", "cuda"]

# Files that a room's library leaves out where its sources are not said: tests, what only tests import, and scripts that
# run outside of Bazel.
_LIBRARY_EXCLUDES = [
    "**/*_test.py",
    "**/*_testing.py",
    "testdata/**",
    "**/make_*goldens.py",
    "**/draw_*.py",
    "**/run_*_client.py",
    "**/run_*_reference.py",
]

def py_library(name = None, srcs = None, **kwargs):
    """A py_library; that of a room is named as its folder and has its files.

    Args:
      name: the target, by default the folder's name.
      srcs: by default every Python file of the package but `*_test.py` and `*_testing.py`: of the folder, and of
        folders below it that have no BUILD file, but `testdata`.
      **kwargs: of py_library.
    """
    _py_library(
        name = name or native.package_name().split("/")[-1],
        srcs = native.glob(["**/*.py"], exclude = _LIBRARY_EXCLUDES) if srcs == None else srcs,
        **kwargs
    )

def py_pytest_test(name = "tests", srcs = None, deps = [], args = [], data = [], **kwargs):
    """A py_test that runs pytest over srcs; each of srcs has to hold a test.

    Args:
      name: the target, where it is not the tests of the room: named as its one source.
      srcs: test modules, by default every `*_test.py` of the package.
      deps: what the modules import; pytest need not be named.
      args: further arguments of pytest.
      data: further files.
      **kwargs: of py_test.
    """
    srcs = native.glob(["**/*_test.py"]) if srcs == None else srcs
    bytecode_of_deps(
        name = name + "_bytecode",
        testonly = True,
        deps = deps,
        tags = ["manual"],
        target_compatible_with = kwargs.get("target_compatible_with"),
    )
    py_test(
        name = name,
        srcs = srcs + [_MAIN],
        main = _MAIN,
        args = ["$(rootpath %s)" % s for s in srcs] + args,
        data = data + [":%s_bytecode" % name],
        # Machines differ by three times, and one that is busy takes several times as long again.
        timeout = "long",
        deps = deps + ["@pip//pytest"],
        **kwargs
    )

def py_device_tests(name = "device_tests", srcs = [], devices = DEVICES, tags = [], env = {}, **kwargs):
    """One py_pytest_test per device, called `<name>_<device>`, and a test_suite called name.

    The device is in the environment variable TAPELINE_DEVICE and among the tags. Where the driver of
    a device is absent its test is incompatible with the platform: `bazel test` reports it as SKIPPED,
    and @local_devices//:README.txt says what was looked for.

    Args:
      name: of the suite.
      srcs: test modules.
      devices: those to test.
      tags: further tags.
      env: further environment variables.
      **kwargs: of py_pytest_test.
    """
    tests = []
    for device in devices:
        test = "%s_%s" % (name, device.replace("-", "_"))
        tests.append(":" + test)
        py_pytest_test(
            name = test,
            srcs = srcs,
            env = dict(VULKAN_ENV if device == "vulkan" else {}, TAPELINE_DEVICE = device, **env),
            # Mesa's lavapipe was seen to lose its device (VK_ERROR_DEVICE_LOST) while the machine was busy.
            flaky = device == "vulkan",
            tags = tags + ["device", device],
            target_compatible_with = select({
                "@local_devices//:has_" + device: [],
                "//conditions:default": ["@platforms//:incompatible"],
            }) if device in _DETECTED else [],
            **kwargs
        )
    native.test_suite(name = name, tests = tests, tags = ["manual"] if "manual" in tags else [])

def py_tool(name, srcs = None, deps = ["//tapeline/program"], **kwargs):
    """A py_binary that finds the Vulkan driver that build_defs/devices.bzl unpacked, if it did.

    Args:
      name: of the target.
      srcs: by default the file of that name.
      deps: by default the commands of tapeline, one of which it calls.
      **kwargs: of py_binary.
    """
    py_binary(name = name, srcs = srcs or [name + ".py"], deps = deps, env = VULKAN_ENV, **kwargs)

def package_wheel(name, package, summary_file = None, commands = {}, deps = [], requires = [], extras = {}):
    """The wheel of one top-level package: its library sources with those of its subpackages, no tests.

    Args:
      name: of the target.
      package: the top-level package, which is also the distribution's name.
      summary_file: a Markdown file for the long description.
      commands: console scripts: the name of each, and `module:function`.
      deps: targets that bring all libraries of the package; rooms that another one depends on need not be named.
      requires: the distributions it needs; those that name a package of this repository are pinned
        to this very version.
      extras: what each extra requires besides, by its name (`pip install "tapeline[audio]"`); where there are
        several, the extra `all` has what all of them require.
    """
    if len(extras) > 1:
        extras = dict(extras, all = sorted({r: None for required in extras.values() for r in required}))
    py_package(
        name = name + "_sources",
        packages = [package],
        deps = deps,
    )
    py_wheel(
        name = name,
        description_file = summary_file,
        distribution = package,
        entry_points = {"console_scripts": ["%s = %s" % c for c in sorted(commands.items())]} if commands else {},
        python_requires = ">=3.11",
        python_tag = "py3",
        requires = _pinned(requires),
        extra_requires = {extra: _pinned(required) for extra, required in extras.items()},
        version = VERSION,
        visibility = ["//visibility:public"],
        deps = [":" + name + "_sources"],
    )

def _pinned(requirements):
    return ["%s==%s" % (r, VERSION) if r.split("[")[0] in OWN_PACKAGES else r for r in requirements]

# The distributions that this repository makes, lowest layer first.
OWN_PACKAGES = [
    "lang_core",
    "compile_dag",
    "compile_hlo",
    "runtime",
    "transformer_core",
    "generation",
    "run_iree",
    "run_jax",
    "autotune",
    "tapeline",
]
