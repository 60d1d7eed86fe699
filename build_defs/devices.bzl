"""Looks for device drivers on the host: @local_devices//:has_cuda, :has_vulkan.

What was found is written to @local_devices//:README.txt, and the reason for what tests skip is printed
when Bazel's server starts. TAPELINE_DEVICES (a comma list such as
"vulkan,cuda", or empty for none) takes the place of the search.
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

def _device_autodetect_impl(rctx):
    forced = rctx.os.environ.get("TAPELINE_DEVICES")
    if forced == None:
        found = {"cuda": _find_cuda(rctx), "vulkan": _find_vulkan(rctx)}
        missing = {
            "cuda": "skipped: none of " + ", ".join(_CUDA_DEVICES) + " is there",
            "vulkan": "skipped: no driver's *.json in " + ", ".join(_VULKAN_DRIVER_FOLDERS),
        }
    else:
        found = {d: "TAPELINE_DEVICES" if d in forced.split(",") else None for d in ["cuda", "vulkan"]}
        missing = {d: "skipped: not in TAPELINE_DEVICES=" + forced for d in found}

    build = ['package(default_visibility = ["//visibility:public"])\n\nexports_files(["README.txt"])\n']
    readme = []
    for device, where in sorted(found.items()):
        build.append(_DEVICE_BUILD.format(device = device, state = "present" if where else "absent"))
        readme.append("%s: %s\n" % (device, "found: " + where if where else missing[device]))
        if not where:
            # buildifier: disable=print
            print("tests of %s are %s" % (device, missing[device]))
    rctx.file("BUILD.bazel", "".join(build))
    rctx.file("README.txt", "".join(readme))

device_autodetect = repository_rule(
    implementation = _device_autodetect_impl,
    doc = "Defines has_<device> for each device that needs a driver of the host.",
    configure = True,
    environ = ["TAPELINE_DEVICES"],
    local = True,
)
