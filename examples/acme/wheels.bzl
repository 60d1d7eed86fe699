"""Tapeline's wheels as one library: unpacked side by side, with what their metadata says that they require."""

_BUILD = """
load("@rules_python//python:defs.bzl", "py_library")

package(default_visibility = ["//visibility:public"])

py_library(
    name = "tapeline",
    srcs = glob(["**/*.py"]),
    data = glob(["**/*"], exclude = ["**/*.py", "*.bazel", "WORKSPACE"]),
    imports = ["."],
    deps = {deps},
)
"""

def _wheels_below(folder):
    """Returns the wheels in a folder, and in the folders in it."""
    wheels = []
    for path in folder.readdir():
        inside = path.readdir() if path.is_dir else [path]
        wheels += [file for file in inside if file.basename.endswith("-none-any.whl")]
    return wheels

def _label(name, hub):
    return "@%s//%s" % (hub, name.lower().replace("-", "_").replace(".", "_"))

def _requirement(line):
    """Returns the name that a line of METADATA requires; None where it says something else, or a condition."""
    if not line.startswith("Requires-Dist: ") or ";" in line:
        return None
    name = line[len("Requires-Dist: "):]
    for end in "<>=!~[( ".elems():
        name = name.split(end)[0]
    return name

def _wheel_folder_impl(rctx):
    given = rctx.os.environ.get("TAPELINE_WHEELS") or rctx.attr.folder
    folder = rctx.path(given if given.startswith("/") else "%s/%s" % (rctx.workspace_root, given))
    wheels = _wheels_below(folder) if folder.exists else []
    if not wheels:
        fail("%s has no wheels: run `./bazelw build //:wheels` in Tapeline's tree, or set TAPELINE_WHEELS" % folder)
    names, required = {}, {}
    for wheel in wheels:
        name, version = wheel.basename.split("-")[:2]
        names[name] = True
        rctx.symlink(wheel, "wheel.zip")  # extract() goes by the name's end
        rctx.extract("wheel.zip")
        rctx.delete("wheel.zip")
        for line in rctx.read("%s-%s.dist-info/METADATA" % (name, version)).split("\n"):
            requirement = _requirement(line)
            if requirement:
                required[requirement] = True
    deps = [_label(name, rctx.attr.hub) for name in sorted(required) if name not in names]
    rctx.file("BUILD.bazel", _BUILD.format(deps = deps))

wheel_folder = repository_rule(
    implementation = _wheel_folder_impl,
    doc = "Wheels of a folder as //:tapeline.",
    attrs = {
        "folder": attr.string(mandatory = True, doc = "Folder of the wheels, or of folders that have one each."),
        "hub": attr.string(default = "pip", doc = "Repository of pip_parse that has what they require."),
    },
    configure = True,
    environ = ["TAPELINE_WHEELS"],
    local = True,
)
