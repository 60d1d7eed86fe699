"""Bytecode of wheels and of libraries, compiled once, and wheels without what nothing here reads.

A test's sandbox has sources alone and is gone with the test: without bytecode beside them each test, and each program
that it starts, would compile anew whatever it imports, a second's work for pytest and NumPy, more than one for JAX, and
one for all of tapeline. And each file of a wheel is a link in the runfiles of each test, another one in its sandbox,
and both are deleted again.
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

_COMPILER = attr.label(default = "//build_defs:compile_bytecode.py", allow_single_file = True)

def _compiled(ctx, compiler, srcs, path_of):
    """Declares the .pyc of srcs, each beside its source, and what makes them; path_of gives a source's path there."""
    tag = "cpython-" + version.replace(".", "")
    made = []
    lines = ctx.actions.args().use_param_file("@%s", use_always = True).set_param_file_format("multiline")
    for source in srcs:
        folder, _, name = path_of(source).rpartition("/")
        pyc = "__pycache__/%s.%s.pyc" % (name.removesuffix(".py"), tag)
        made.append(ctx.actions.declare_file(folder + "/" + pyc if folder else pyc))
        lines.add_all([source, made[-1]])
    if made:
        ctx.actions.run(
            executable = interpreter,
            arguments = ["-S", compiler.path, lines],
            inputs = srcs + [compiler],
            outputs = made,
            mnemonic = "PyCompile",
            progress_message = "Compiling the Python of %{label}",
        )
    return made

def _bytecode_impl(ctx):
    return DefaultInfo(files = depset(_compiled(ctx, ctx.file._compiler, ctx.files.srcs, lambda f: f.owner.name)))

bytecode = rule(
    implementation = _bytecode_impl,
    doc = "The .pyc of sources, where the interpreter of @host_python looks for them.",
    attrs = {
        "srcs": attr.label_list(allow_files = [".py"], doc = "Modules."),
        "_compiler": _COMPILER,
    },
)

_BytecodeInfo = provider("Bytecode of libraries.", fields = {"files": "The .pyc of a library and of what it depends on."})

def _own_bytecode_impl(target, ctx):
    deps = [d[_BytecodeInfo].files for d in getattr(ctx.rule.attr, "deps", []) if _BytecodeInfo in d]
    srcs = []
    if not target.label.workspace_name and ctx.rule.kind == "py_library":
        srcs = [f for f in ctx.rule.files.srcs if f.is_source]
    below = len(target.label.package) + 1 if target.label.package else 0
    made = _compiled(ctx, ctx.file._compiler, srcs, lambda f: f.short_path[below:])
    return [_BytecodeInfo(files = depset(made, transitive = deps))]

_own_bytecode = aspect(
    implementation = _own_bytecode_impl,
    doc = "The .pyc of this repository's libraries; no wheel sees them.",
    attr_aspects = ["deps"],
    attrs = {"_compiler": _COMPILER},
)

def _bytecode_of_deps_impl(ctx):
    return DefaultInfo(runfiles = ctx.runfiles(transitive_files = depset(
        transitive = [d[_BytecodeInfo].files for d in ctx.attr.deps],
    )))

bytecode_of_deps = rule(
    implementation = _bytecode_of_deps_impl,
    doc = "The .pyc of the libraries that a test depends on, for its runfiles.",
    attrs = {"deps": attr.label_list(aspects = [_own_bytecode], doc = "The test's deps.")},
)
