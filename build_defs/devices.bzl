"""Looks for device drivers on the host: @local_devices//:has_cuda, :has_vulkan.

The results are written to @local_devices//:README.txt, and the reason for what tests skip is printed
when Bazel's server starts. Where the host has no Vulkan driver, Debian's driver for the CPU is unpacked into
the user's cache (tools/bootstrap/vulkan_from_debian.py), and VULKAN_ENV of @local_devices//:env.bzl holds the
environment variables that lead to it. TAPELINE_DEVICES (a comma list such as "vulkan,cuda", or empty for none)
takes the place of the search; "vulkan:unpack" unpacks the driver though the host has one.
"""

_VULKAN_DRIVER_FOLDERS = ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"]

_CUDA_DEVICES = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"]

_DEVICE_BUILD = """
constraint_setting(
    name = "{device}_setting",
    default_constraint_value = ":{device}_{state}",
)

constraint_value(
    name = "{device}_present",
    constraint_setting = ":{device}_setting",
)

constraint_value(
    name = "{device}_absent",
    constraint_setting = ":{device}_setting",
)

config_setting(
    name = "has_{device}",
    constraint_values = [":{device}_present"],
)
"""

def _find_cuda(rctx):
    for device in _CUDA_DEVICES:
        if rctx.path(device).exists:
            return device
    return None

def _find_vulkan(rctx):
    for folder in _VULKAN_DRIVER_FOLDERS:
        path = rctx.path(folder)
        if path.exists:
            for driver in path.readdir():
                if driver.basename.endswith(".json"):
                    return str(driver)
    return None

def _unpack_vulkan(rctx):
    """Unpacks Debian's driver; returns its environment and where it is, or None and why it cannot be unpacked."""
    root = rctx.path(rctx.attr.vulkan_script).dirname.dirname.dirname
    python = rctx.which("python3")
    for program, path in {"apt-get": rctx.which("apt-get"), "python3": python}.items():
        if not path:
            return None, "this machine has no " + program
    cache = rctx.os.environ.get("XDG_CACHE_HOME") or rctx.os.environ.get("HOME", "/root") + "/.cache"
    key = hash("".join([rctx.read(script) for script in [rctx.attr.vulkan_script, rctx.attr.debian_script]]))
    prefix = "%s/tapeline/vulkan-%s" % (cache, str(key).replace("-", "n"))
    settings = rctx.path(prefix + "/environment")
    if not settings.exists:
        command = [python, "-m", "tools.bootstrap.vulkan_from_debian", "--prefix", prefix]
        unpacking = rctx.execute(command, environment = {"PYTHONPATH": str(root)}, timeout = 600)
        if unpacking.return_code:
            return None, unpacking.stderr.strip().replace("\n", " ")
    lines = [line.partition("=") for line in rctx.read(settings).splitlines()]
    return {name: value for name, _, value in lines}, prefix

def _device_autodetect_impl(rctx):
    forced = rctx.os.environ.get("TAPELINE_DEVICES")
    names = forced.split(",") if forced != None else []
    if forced == None:
        places = {"cuda": _find_cuda(rctx), "vulkan": _find_vulkan(rctx)}
        missing = {
            "cuda": "skipped: none of " + ", ".join(_CUDA_DEVICES) + " is there",
            "vulkan": "skipped: no driver's *.json in " + ", ".join(_VULKAN_DRIVER_FOLDERS),
        }
    else:
        places = {d: "TAPELINE_DEVICES" if d in names else None for d in ["cuda", "vulkan"]}
        missing = {d: "skipped: not in TAPELINE_DEVICES=" + forced for d in places}
    vulkan_env = None
    if not places["vulkan"] and (forced == None or "vulkan:unpack" in names):
        vulkan_env, where = _unpack_vulkan(rctx)
        if vulkan_env:
            places["vulkan"] = where
        else:
            missing["vulkan"] += "; " + where

    build = ['package(default_visibility = ["//visibility:public"])\n\nexports_files(["README.txt"])\n']
    readme = []
    for device, where in sorted(places.items()):
        build.append(_DEVICE_BUILD.format(device = device, state = "present" if where else "absent"))
        readme.append("%s: %s\n" % (device, "found: " + where if where else missing[device]))
        if not where:
            # buildifier: disable=print
            print("tests of %s are %s" % (device, missing[device]))
    rctx.file("BUILD.bazel", "".join(build))
    rctx.file("README.txt", "".join(readme))
    rctx.file("env.bzl", "VULKAN_ENV = %s\n" % repr(vulkan_env or {}))

device_autodetect = repository_rule(
    implementation = _device_autodetect_impl,
    doc = "Defines has_<device> for each device that needs a driver of the host.",
    configure = True,
    attrs = {
        "debian_script": attr.label(default = "//tools/bootstrap:debian.py"),
        "vulkan_script": attr.label(default = "//tools/bootstrap:vulkan_from_debian.py"),
    },
    environ = ["TAPELINE_DEVICES", "HOME", "XDG_CACHE_HOME"],
    local = True,
)
