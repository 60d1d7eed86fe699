"""Bytecode of wheels, compiled once, and wheels without what nothing here reads.

A test's sandbox has sources alone and is gone with the test: without bytecode beside them each test would compile
anew whatever it imports, a second's work for pytest and NumPy and more than one for JAX. And each file of a wheel is a
link in the runfiles of each test, another one in its sandbox, and both are deleted again.
"""

load("@host_python//:defs.bzl", "interpreter", "version")
load("@rules_python//python:pip.bzl", "package_annotation")

_BUILD = """
load("@tapeline//build_defs:bytecode.bzl", "bytecode")

bytecode(
    name = "bytecode",
    srcs = glob(["site-packages/**/*.py"], exclude = {unused}),
)
"""

def wheel_annotations(bytecode, unused):
    """Annotations for pip_parse.

    Args:
      bytecode: names of the distributions whose modules are compiled.
      unused: of other distributions or the same, glob patterns below site-packages of files that no target is to have.

    Returns:
      A dict from their names.
    """
    found = {}
    for package in depset(bytecode + unused.keys()).to_list():
        patterns = ["site-packages/" + pattern for pattern in unused.get(package, [])]
        compiled = package in bytecode
        found[package] = package_annotation(
            additive_build_content = _BUILD.format(unused = ["**/* *"] + patterns) if compiled else None,
            data = [":bytecode"] if compiled else [],
            data_exclude_glob = patterns,
            srcs_exclude_glob = patterns,
        )
    return found

def _bytecode_impl(ctx):
    tag = "cpython-" + version.replace(".", "")
    made = []
    lines = ctx.actions.args().use_param_file("@%s", use_always = True).set_param_file_format("multiline")
    for source in ctx.files.srcs:
        folder, _, name = source.owner.name.rpartition("/")
        made.append(ctx.actions.declare_file("%s/__pycache__/%s.%s.pyc" % (folder, name.removesuffix(".py"), tag)))
        lines.add_all([source, made[-1]])
    ctx.actions.run(
        executable = interpreter,
        arguments = ["-S", ctx.file._compiler.path, lines],
        inputs = ctx.files.srcs + [ctx.file._compiler],
        outputs = made,
        mnemonic = "PyCompile",
        progress_message = "Compiling the Python of %{label}",
    )
    return DefaultInfo(files = depset(made))

bytecode = rule(
    implementation = _bytecode_impl,
    doc = "The .pyc of sources, where the interpreter of @host_python looks for them.",
    attrs = {
        "srcs": attr.label_list(allow_files = [".py"], doc = "Modules."),
        "_compiler": attr.label(default = "//build_defs:compile_bytecode.py", allow_single_file = True),
    },
)
