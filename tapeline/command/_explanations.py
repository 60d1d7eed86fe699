"""Kinds of errors: what each means, its usual causes, and what to do; the page and ``explain`` are made of them."""

from typing import Final, NamedTuple

from lang_core import MissingPackageError

ERRORS_PAGE: Final = "docs/errors.md"
"""Address of the page that is generated from this module; that of the site's page once there is a site."""


class Explanation(NamedTuple):
    """Explanation of a kind of error.

    Attributes:
        meaning: one sentence.
        causes: usual causes, the most frequent first.
        cures: what to do about them, in the order in which to try.
    """

    meaning: str
    causes: tuple[str, ...]
    cures: tuple[str, ...]


EXPLANATIONS: Final = {
    "TapelineError": Explanation(
        "The base of all kinds: `except TapelineError` takes whatever Tapeline raises on purpose.",
        ("One of the kinds below; nothing raises the base itself.",),
        ("Read the section of the kind that the traceback names.",),
    ),
    "InputError": Explanation(
        "A file, an option or an argument that was handed in is wrong. Nothing was computed; the exit code is 2.",
        (
            "A path that does not exist, is of another kind, or cannot be written.",
            "Options that do not go together, or a number outside its range.",
            "A bundle that was exported for something else: another device, other sizes, no chat template.",
            "A file of a bundle that was changed or lost after the export.",
        ),
        (
            "Read what the message says was found, and what is available.",
            "`tapeline <command> --help` lists the flags, `tapeline inspect --bundle=DIR` says what a bundle can.",
            "Export again where the bundle is damaged or of other sizes.",
        ),
    ),
    "CheckpointError": Explanation(
        "A file or a tensor of a checkpoint is missing, damaged, or of another shape than the model's.",
        (
            "A download that was cut off, or a file of Git LFS that holds only its pointer.",
            "A shard that `model.safetensors.index.json` names and the directory lacks.",
            "A `config.json` of another model than the weights.",
        ),
        (
            "Fetch the named file again.",
            "`tapeline inspect --model=DIR` lists configuration and tensors without an export.",
            "Compare the two shapes in the message: the model's is from `config.json`.",
        ),
    ),
    "ConfigError": Explanation(
        "A model's configuration lacks a field, contradicts itself, or names something that is not supported.",
        (
            "A family of models, a RoPE scaling, an activation or an attention that Tapeline does not know.",
            "A `config.json` that was written by hand or by an older library.",
            "A mesh whose text is malformed.",
            "An option of sampling outside its range, such as `--temperature=-1`.",
        ),
        (
            "docs/supported.md and docs/models.md list what is supported.",
            "Correct the field that the message names.",
            "Add the family in a package of your own: docs/extending.md.",
        ),
    ),
    "ChoiceError": Explanation(
        "An argument with a fixed set of values is none of them.",
        ("A misspelt value, or one of a later version.",),
        ("Take one of the values that the message lists.",),
    ),
    "DescriptionError": Explanation(
        "A file of a bundle is not the one that was exported, or the description contradicts the module or itself.",
        (
            "A file that a disk or a copy damaged, or that was edited.",
            "A `kernel_config.json` that was edited, or comes from another export than the module beside it.",
        ),
        ("Export the bundle again; copy bundles as whole directories.",),
    ),
    "PagesError": Explanation(
        "A row of a server needs a page of the caches, and none is free that no other row was promised.",
        (
            "A program drives the rows of a bundle with pages itself, and begins more sequences than the pages hold.",
            "`tapeline serve` reserves pages before a request gets its row: from there it is a fault of ours.",
        ),
        (
            "Clear rows whose sequences have ended, or begin fewer at once.",
            "Export with more pages: `--pages`; docs/serving.md says how many.",
        ),
    ),
    "MissingPackageError": Explanation(
        "A part of Tapeline was used for which a package is not installed. Nothing was computed; the exit code is 2.",
        (
            "`pip install tapeline` brings what CPUs, Vulkan and CUDA need through IREE; JAX, training, sound, images "
            "and plots are extras.",
            "A bundle or a command that was written where more was installed.",
        ),
        (
            "Run the `pip install` that the message names, in the environment that runs Tapeline.",
            "`pip install 'tapeline[all]'` brings all extras.",
        ),
    ),
    "PluginError": Explanation(
        "An installed package that extends Tapeline cannot be loaded.",
        (
            "The package raises when it is imported; the message has its error.",
            "Two packages register the same name, or one registers a name that Tapeline has.",
        ),
        (
            "Import the module that the message names in Python, and mend or update its package.",
            "Uninstall it: without its entry point nothing of it is loaded.",
        ),
    ),
    "OpError": Explanation(
        "An op was called against its contract: shapes, dtypes or attributes.",
        ("Shapes that do not broadcast, a dtype that the op does not take, an attribute outside its range.",),
        (
            "The message gives the numbered constraint; docs/ops.md has its text.",
            "Look at the module path in the message: the fault is in the model code that made the call.",
        ),
    ),
    "OperatorError": Explanation(
        "A Python operator or a NumPy function was applied to a tensor, a parameter or a value of a flow.",
        ("`0.5 * x`, `x @ y`, `x[0]`, `x < 1`, `len(x)`, `np.tanh(x)` in the code of a model.",),
        (
            "Call the op that the message names: `ctx.ops.mul(x, 0.5)`. docs/ops.md lists all.",
            "For NumPy take the data, `x.numpy()`, on a path that asks `ctx.isRecording`: docs/packages.md.",
            "Read a parameter with `ctx.parameter(self.weight)` first.",
        ),
    ),
    "UnknownNameError": Explanation(
        "An op, or an attribute of a tensor, was looked up that does not exist. It is an AttributeError, too.",
        ("A misspelt name, or a name that NumPy, PyTorch or JAX has for the op.",),
        ("Take the name that the message gives; docs/ops.md lists all.",),
    ),
    "KeywordError": Explanation(
        "A function was called with a keyword argument that it does not have. It is a TypeError, too.",
        ("A misspelt name, or a name that another library has for the argument.",),
        ("Take one of the names that the message lists.",),
    ),
    "JsonError": Explanation(
        "A JSON text is damaged or beyond its bounds. It is an InputError and a ValueError, too.",
        (
            "A file was cut off, or saved in UTF-16 or with a byte order mark.",
            "A number is beyond 64-bit floats or has over 40 digits, or lists and objects nest deeper than 100.",
        ),
        ("Copy the file again from where it came, or correct it at the place that the message names.",),
    ),
    "TraceEscapeError": Explanation(
        "A value without data was used as if it had some, or data was about to enter a trace unseen.",
        (
            "Model code asks a recorded value for its numbers: `if`, `float(...)`, `.numpy()`, `print`.",
            "A NumPy array that was computed outside reaches a recorded op.",
        ),
        (
            "Compute it with `ctx.ops` instead, or ask `ctx.isRecording` first.",
            "Say `ctx.constant(array)` where the array is meant to be frozen into the module.",
        ),
    ),
    "RecordingError": Explanation(
        "Recording was used out of order: a closed tape, a value of another tape, a block that does not nest.",
        ("A recorded value that is kept beyond its recording.", "A block that is left in another order than entered."),
        ("Record and use the tape within one `with`; make values anew in each recording.",),
    ),
    "GraphError": Explanation(
        "A graph is malformed, or was asked for something that it does not have.",
        ("An output's name that the graph lacks; the message lists near names.", "A graph that was built by hand."),
        ("Correct the name. Where the graph came out of `record`, it is a fault of ours: report it.",),
    ),
    "CompileError": Explanation(
        "A compiler refused a module. The exit code is 1.",
        (
            "An op or a dtype that the target has no code for (docs/devices.md).",
            "A module that is too large for the compiler's memory.",
            "A compiler of another version than the one that Tapeline's tests ran with.",
        ),
        (
            "The message names the line of the module, and where it comes from.",
            "Try another target, `--dtype=f32`, or fewer layers by `--num_layers` to see which part it is.",
            "`tapeline doctor` prints the versions: add it to a report.",
        ),
    ),
    "DeviceError": Explanation(
        "A device is absent, or refused a call.",
        (
            "No driver: Vulkan and CUDA need that of the machine.",
            "Memory of the device is used up.",
            "A bundle that was exported without this device's target.",
        ),
        (
            "`tapeline doctor` lists devices, and what is missing for the others.",
            "Export with `--target` of the device, or run on `--device=local-task`.",
            "Use a smaller `--max_sequence` or fewer `--slots`.",
        ),
    ),
    "ProcessError": Explanation(
        "Another process of the same run has not come, has ended, or does something else.",
        (
            "A rank that failed first: its own lines begin with its number in brackets.",
            "Ranks with different flags or bundles.",
            "A coordinator's address that other machines cannot reach.",
        ),
        (
            "Read the first error, not the last.",
            "Start all ranks with the same command and the same files; docs/distributed.md has a list of failures.",
            "Give a longer `--timeout` where machines start slowly.",
        ),
    ),
    "VerificationError": Explanation(
        "A result does not agree with its reference. The exit code is 3, and an export leaves no bundle.",
        (
            "A compiler's fault on this target.",
            "A dtype that is too coarse for the model: f16 overflows in some.",
            "With `compare`: two bundles that are not of the same model or options.",
        ),
        (
            "The message names the first block and op that differ.",
            "`tapeline compare` shows where errors grow: docs/debugging.md.",
            "Try `--dtype=f32` or another target; report it where f32 on `llvm-cpu` fails.",
        ),
    ),
    "HubError": Explanation(
        "A model could not be had from the hub: its name, revision, access, connection, space or content.",
        (
            "A misspelt name, or a model whose licence has to be accepted on its page first.",
            "No login: a private or gated model needs a token.",
            "A disk that is full.",
        ),
        (
            "docs/hub.md has a section for each of these.",
            "`tapeline doctor` says whether there is a login and where the cache is.",
        ),
    ),
    "UnreachableError": Explanation(
        "The hub could not be asked, and the cache does not hold what was asked for.",
        ("No network, a proxy, or an outage of the hub.",),
        ("Try again; or fetch the files by other means and give their directory as `--model`.",),
    ),
    "NoTemplateError": Explanation(
        "A model has no chat template, so turns of a conversation cannot be written as its prompt.",
        ("A base model, which goes on from a text and answers no questions.",),
        (
            "Use `generate --prompt` without `--chat`, or the model's instruct variant.",
            "`serve --chat_template=FILE` takes a template of your own.",
        ),
    ),
    "UnreadTokenizerError": Explanation(
        "The tokenizer of a GGUF file is of a kind that is not read.",
        (
            "A rule for cutting text into words that Tapeline does not know yet.",
            "SentencePiece scores that are equal, so that merges depend on the place in a text.",
        ),
        ("The model is exported without a tokenizer: give `--token_ids`, or export the Hugging Face directory.",),
    ),
    "ConstraintError": Explanation(
        "The constraint of a request (JSON, schema, expression, grammar) failed, or left no token to choose.",
        ("A grammar that is malformed, too large, or that no text fulfils.",),
        ("Correct the grammar; docs/grammars.md has its limits.",),
    ),
    "RequestError": Explanation(
        "A request to the server is answered with an error; its JSON has the message, the field and a code.",
        ("A field that is wrong or not supported, an unknown model, a wrong key, a limit that is exceeded.",),
        ("The answer's `param` names the field; docs/serving.md lists fields, limits and codes.",),
    ),
    "BusyError": Explanation(
        "The server's queue is full; the request is answered with 429.",
        ("More requests than `--slots` answers at once and `--max_waiting` holds.",),
        ("Ask again after `Retry-After` seconds; give the server more slots, or start another one.",),
    ),
    "EngineClosedError": Explanation(
        "The server takes no requests any more, or ended this one when it was closed.",
        ("The server is being stopped, or its bundles are loaded again.",),
        ("Ask again when `/health` answers 200.",),
    ),
    "ModelFailedError": Explanation(
        "A call of the model failed on the server; all answers that were running ended with this.",
        ("The device failed or its memory is used up; the server's log has the first error.",),
        ("Read the log, free memory or take fewer `--slots`, and start the server again.",),
    ),
    "ClientGoneError": Explanation(
        "The client closed its connection, so its answer was given up. No client ever sees it.",
        ("A timeout of the client, or a user who left the page.",),
        ("Nothing, or a longer timeout in the client.",),
    ),
    "KernelError": Explanation(
        "A kernel's contract is violated: in its declaration, a call, or a configuration that was remembered.",
        ("A kernel class whose fields or methods do not fit, or a cache that another version wrote.",),
        ("docs/kernels.md has the contract; `tapeline tune clear --op=NAME` forgets what is remembered.",),
    ),
    "MissingMethodError": Explanation(
        "A kernel lacks a method that the call needs.",
        ("The kernel is run on a compiler, or asked for a gradient, that it has no method for.",),
        ("Write the method that the message names: docs/kernels.md.",),
    ),
    "ConfigSelectionError": Explanation(
        "No tier has a configuration for a call of a kernel; the message gives the reason of each tier.",
        ("The kernel has no heuristic, and the call was never tuned.",),
        ("Record the call and `tapeline tune recorded`, or give the kernel a heuristic.",),
    ),
    "TuningError": Explanation(
        "Tuning is not allowed or not possible here, or no candidate is good.",
        ("Nothing was recorded, or every candidate failed or computed something else.",),
        ("Run once with `TAPELINE_OPS_RECORD=1`; `tapeline tune explain` shows why candidates failed.",),
    ),
}
"""Explanations by the name of the kind, a base before what it is the base of."""


def kind_of(error: BaseException) -> str | None:
    """Returns the name of the nearest kind that is explained; None of an error that nobody foresaw.

    Kinds of packages that extend Tapeline have that of their base.
    """
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in EXPLANATIONS), None)


def see_also(error: BaseException) -> str:
    """Returns a line, behind a line break, that says where an error is explained; empty if its message says all."""
    if isinstance(error, MissingPackageError):
        return ""
    kind = kind_of(error)
    return "" if kind is None else f"\nsee: tapeline explain {kind}, or {ERRORS_PAGE}#{kind.lower()}"
