"""Explanations of all kinds of errors, from which docs/errors.md and ``explain`` are generated."""

from typing import Final, NamedTuple

from lang_core import MissingPackageError

ERRORS_PAGE: Final = "docs/errors.md"
"""Path of the page that is generated from this module."""


class Explanation(NamedTuple):
    """Explanation of a kind of error.

    Attributes:
        meaning: one sentence.
        causes: usual causes, the most frequent first.
        cures: fixes, in the order in which to try them.
    """

    meaning: str
    causes: tuple[str, ...]
    cures: tuple[str, ...]


EXPLANATIONS: Final = {
    "TapelineError": Explanation(
        "The base class of all kinds: `except TapelineError` catches all errors that Tapeline raises on purpose.",
        ("One of the kinds below; the base class itself is never raised.",),
        ("Read the section of the kind that the traceback names.",),
    ),
    "InputError": Explanation(
        "A file, an option or an argument is wrong. Nothing was computed; the exit code is 2.",
        (
            "A path that does not exist, is of the wrong type, or is not writable.",
            "Options that exclude each other, or a number outside its range.",
            "A bundle that was exported for another purpose: another device, other sizes, no chat template.",
            "A file of a bundle that was changed or deleted after the export.",
        ),
        (
            "The message has the actual and the possible values.",
            "`tapeline <command> --help` lists the flags, `tapeline inspect --bundle=DIR` describes a bundle.",
            "Export again if the bundle is damaged or has other sizes.",
        ),
    ),
    "CheckpointError": Explanation(
        "A file or a tensor of a checkpoint is missing or damaged, or its shape does not match the model.",
        (
            "A download that was cut off, or a file of Git LFS that holds only its pointer.",
            "A shard that is listed in `model.safetensors.index.json` but missing in the directory.",
            "A `config.json` of another model than the weights.",
        ),
        (
            "Download the named file again.",
            "`tapeline inspect --model=DIR` lists configuration and tensors without an export.",
            "Compare the two shapes in the message: the model's shape comes from `config.json`.",
        ),
    ),
    "ConfigError": Explanation(
        "A model's configuration lacks a field, is inconsistent, or needs an unsupported feature.",
        (
            "A model family, a RoPE scaling, an activation or an attention variant that Tapeline does not support.",
            "A `config.json` that was written by hand or by an older library.",
            "A malformed mesh.",
            "A sampling option outside its range, such as `--temperature=-1`.",
        ),
        (
            "docs/supported.md and docs/models.md list supported models and features.",
            "Correct the field that the message names.",
            "Add the model family in your own package: docs/extending.md.",
        ),
    ),
    "ChoiceError": Explanation(
        "An argument is not one of its fixed set of values.",
        ("A misspelt value, or a value of a later version.",),
        ("Use one of the values that the message lists.",),
    ),
    "DescriptionError": Explanation(
        "A file of a bundle differs from the exported file, or the manifest contradicts the module or itself.",
        (
            "A file that was edited, or damaged by a disk or a copy.",
            "A `kernel_config.json` that was edited, or comes from another export than the module beside it.",
        ),
        ("Export the bundle again; copy bundles as whole directories.",),
    ),
    "PagesError": Explanation(
        "A sequence needs a KV-cache page, and all free pages are reserved by other sequences.",
        (
            "A program that drives a paged bundle itself starts more sequences than the pages hold.",
            "`tapeline serve` reserves pages before a request starts: if the server raises this error, it is a bug in "
            "Tapeline.",
        ),
        (
            "Clear the slots of finished sequences, or start fewer sequences at once.",
            "Export with more pages: `--pages` (docs/serving.md).",
        ),
    ),
    "MissingPackageError": Explanation(
        "A feature needs a package that is not installed. Nothing was computed; the exit code is 2.",
        (
            "`pip install tapeline` supports CPUs, Vulkan and CUDA through IREE; JAX, training, audio, images "
            "and plots are extras.",
            "A bundle or a command from a machine with more extras installed.",
        ),
        (
            "Run the `pip install` that the message names, in the environment that runs Tapeline.",
            "`pip install 'tapeline[all]'` installs all extras.",
        ),
    ),
    "PluginError": Explanation(
        "An installed package that extends Tapeline cannot be loaded.",
        (
            "The package raises when it is imported; the message has its error.",
            "Two packages register the same name, or a package registers a name of Tapeline's.",
        ),
        (
            "Import the module that the message names in Python, and fix or update its package.",
            "Uninstall it: without its entry point the package is not loaded.",
        ),
    ),
    "OpError": Explanation(
        "A call violates the contract of an op: shapes, dtypes or attributes.",
        ("Shapes that do not broadcast, a dtype that the op does not take, an attribute outside its range.",),
        (
            "The message gives the numbered constraint; docs/ops.md has its text.",
            "The module path in the message names the model code that made the call.",
        ),
    ),
    "OperatorError": Explanation(
        "A Python operator or a NumPy function was applied to a tensor, a parameter or a value of a flow.",
        ("`0.5 * x`, `x @ y`, `x[0]`, `x < 1`, `len(x)`, `np.tanh(x)` in the code of a model.",),
        (
            "Call the op that the message names: `ctx.ops.mul(x, 0.5)`. docs/ops.md lists all ops.",
            "For NumPy, use the data, `x.numpy()`, on a path that checks `ctx.isRecording`: docs/packages.md.",
            "Read a parameter with `ctx.parameter(self.weight)` first.",
        ),
    ),
    "UnknownNameError": Explanation(
        "An op or an attribute of a tensor does not exist. This error is also an AttributeError.",
        ("A misspelt name, or the op's name in NumPy, PyTorch or JAX.",),
        ("Use the name that the message suggests; docs/ops.md lists all ops.",),
    ),
    "KeywordError": Explanation(
        "A function has no such keyword argument. This error is also a TypeError.",
        ("A misspelt name, or the argument's name in another library.",),
        ("Use one of the names that the message lists.",),
    ),
    "JsonError": Explanation(
        "A JSON text is malformed or exceeds a limit. This error is also an InputError and a ValueError.",
        (
            "A file was cut off, or saved in UTF-16 or with a byte order mark.",
            "A number is beyond 64-bit floats or has over 40 digits, or lists and objects nest deeper than 100.",
        ),
        ("Copy the file again from its source, or correct it at the place that the message names.",),
    ),
    "TraceEscapeError": Explanation(
        "Code read the data of a recorded value, or passed an array to a recorded op.",
        (
            "Model code reads the data of a recorded value: `if`, `float(...)`, `.numpy()`, `print`.",
            "A NumPy array that was computed outside the recording reaches a recorded op.",
        ),
        (
            "Compute it with `ctx.ops` instead, or check `ctx.isRecording` first.",
            "Use `ctx.constant(array)` if the array is to be a constant of the module.",
        ),
    ),
    "RecordingError": Explanation(
        "A recording was used incorrectly: a closed tape, a value of another tape, a block that does not nest.",
        ("A recorded value that is used after its recording.", "Blocks that are not closed in reverse order."),
        ("Record and use the tape within one `with`; create new values in each recording.",),
    ),
    "GraphError": Explanation(
        "A graph is malformed, or lacks a requested name.",
        ("An output name that the graph lacks; the message lists similar names.", "A graph that was built by hand."),
        ("Correct the name. If the graph comes from `record`, report it as a bug.",),
    ),
    "CompileError": Explanation(
        "A compiler rejected a module. The exit code is 1.",
        (
            "An op or a dtype that the target does not support (docs/devices.md).",
            "Not enough memory for the compiler.",
            "A compiler version that Tapeline was not tested with.",
        ),
        (
            "The message names the line of the module, and its source in the model.",
            "Try another target, `--dtype=f32`, or fewer layers with `--num_layers`, to find the part that fails.",
            "`tapeline doctor` prints the versions: add it to a report.",
        ),
    ),
    "DeviceError": Explanation(
        "A device is missing, or a call on it failed.",
        (
            "A missing driver: Vulkan and CUDA need the driver of the machine.",
            "The device is out of memory.",
            "A bundle that was exported without the device's target.",
        ),
        (
            "`tapeline doctor` lists the devices, and missing requirements of the others.",
            "Export with the device's `--target`, or run on `--device=local-task`.",
            "Use a smaller `--max_sequence` or fewer `--slots`.",
        ),
    ),
    "ProcessError": Explanation(
        "Another process of the same run did not start, has ended, or is out of step.",
        (
            "A rank that failed first: its output lines start with its rank in brackets.",
            "Ranks with different flags or bundles.",
            "A coordinator address that other machines cannot reach.",
        ),
        (
            "Read the first error, not the last.",
            "Start all ranks with the same command and the same files; docs/distributed.md has a list of failures.",
            "Increase `--timeout` if machines start slowly.",
        ),
    ),
    "VerificationError": Explanation(
        "A result does not agree with its reference. The exit code is 3, and an export leaves no bundle.",
        (
            "A compiler bug on this target.",
            "A dtype without enough range or precision for the model: f16 overflows in some models.",
            "With `compare`: two bundles of different models or options.",
        ),
        (
            "The message names the first block and op that differ.",
            "`tapeline compare` shows the layers in which errors grow: docs/debugging.md.",
            "Try `--dtype=f32` or another target; report a bug if f32 on `llvm-cpu` fails.",
        ),
    ),
    "HubError": Explanation(
        "A model could not be downloaded from the hub: its name, revision, access, the connection, disk space or its "
        "content.",
        (
            "A misspelt name, or a model with a licence that must be accepted on its page first.",
            "No login: a private or gated model needs a token.",
            "A full disk.",
        ),
        (
            "docs/hub.md has a section for each of these.",
            "`tapeline doctor` shows the login and the cache directory.",
        ),
    ),
    "UnreachableError": Explanation(
        "The hub is unreachable, and the cache lacks the requested files.",
        ("A missing network connection, a proxy, or an outage of the hub.",),
        ("Try again, or download the files by other means and pass their directory as `--model`.",),
    ),
    "NoTemplateError": Explanation(
        "A model lacks a chat template, so it cannot format messages as a prompt.",
        ("A base model, which continues text but is not trained for chat.",),
        (
            "Use `generate --prompt` without `--chat`, or the model's instruct variant.",
            "`serve --chat_template=FILE` sets a template.",
        ),
    ),
    "UnreadTokenizerError": Explanation(
        "The tokenizer type of a GGUF file is not supported.",
        (
            "An unsupported pre-tokenizer.",
            "Equal SentencePiece scores, with which merges depend on the position in the text.",
        ),
        ("The model is exported without a tokenizer: give `--token_ids`, or export the Hugging Face directory.",),
    ),
    "ConstraintError": Explanation(
        "The constraint of a request (JSON, schema, regular expression, grammar) failed, or excluded all tokens.",
        ("A grammar that is malformed, too large, or matches nothing.",),
        ("Correct the grammar; docs/grammars.md has its limits.",),
    ),
    "RequestError": Explanation(
        "The server rejected a request; the JSON response has the message, the field and a code.",
        ("An invalid or unsupported field, an unknown model, a wrong key, an exceeded limit.",),
        ("The response's `param` names the field; docs/serving.md lists fields, limits and codes.",),
    ),
    "BusyError": Explanation(
        "The server's queue is full; the request is answered with 429.",
        ("More requests than `--slots` plus `--max_waiting`.",),
        ("Retry after `Retry-After` seconds; use more slots, or start another server.",),
    ),
    "EngineClosedError": Explanation(
        "The server was shut down before or during the request.",
        ("The server is shutting down, or reloading its bundles.",),
        ("Retry when `/health` answers 200.",),
    ),
    "ModelFailedError": Explanation(
        "A call of the model failed on the server; all running requests end with this error.",
        ("The device failed or is out of memory; the server's log has the first error.",),
        ("Read the log, free memory or use fewer `--slots`, and restart the server.",),
    ),
    "ClientGoneError": Explanation(
        "The client closed its connection, so its request was cancelled. Clients never see this error.",
        ("A timeout in the client, or a user who left the page.",),
        ("Ignore it, or set a longer timeout in the client.",),
    ),
    "KernelError": Explanation(
        "A kernel violates the contract: in its declaration, a call, or a stored configuration.",
        ("A kernel class with wrong fields or methods, or a cache of another version.",),
        ("docs/kernels.md has the contract; `tapeline tune clear --op=NAME` removes stored configurations.",),
    ),
    "MissingMethodError": Explanation(
        "A kernel lacks a method that the call needs.",
        ("The kernel lacks the method for this compiler or for gradients.",),
        ("Write the method that the message names: docs/kernels.md.",),
    ),
    "ConfigSelectionError": Explanation(
        "No tier has a configuration for a call of a kernel; the message gives the reason of each tier.",
        ("The kernel lacks a heuristic, and the call was never tuned.",),
        ("Record the call and run `tapeline tune recorded`, or add a heuristic to the kernel.",),
    ),
    "TuningError": Explanation(
        "Tuning is not allowed or not possible here, or all candidates failed.",
        ("No calls were recorded, or every candidate failed or gave wrong results.",),
        ("Run once with `TAPELINE_OPS_RECORD=1`; `tapeline tune explain` shows why candidates failed.",),
    ),
}
"""Explanations by the name of the kind; base classes come before their subclasses."""


def kind_of(error: BaseException) -> str | None:
    """Returns the name of the closest explained kind, or None for an unexpected error.

    Kinds of plugins are explained by their base class.
    """
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in EXPLANATIONS), None)


def see_also(error: BaseException) -> str:
    """Returns a line break and a line that names the page of an error, or an empty text if the message suffices."""
    if isinstance(error, MissingPackageError):
        return ""
    kind = kind_of(error)
    return "" if kind is None else f"\nsee: tapeline explain {kind}, or {ERRORS_PAGE}#{kind.lower()}"
