"""Describes a bundle or a model.

inspect BUNDLE                                  all facts, and whether the files match the manifest
inspect BUNDLE --parameters 'model.layers.0.*'  parameters with a matching path
inspect BUNDLE --graph svg --output graph.svg   the module's graph with repeated blocks collapsed
inspect FILE.gguf                               configuration, tokenizer and tensors of a model
"""

from pathlib import Path
from typing import Any, Final, cast

from absl import flags

import tapeline
from lang_core import InputError
from tapeline import cli
from tapeline.analysis.inspecting import GRAPH_FORMATS, check_whole, facts_text, model_text, parameters_text
from tapeline.command._format_flags import FormatFlag, json_text

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("model", "bundle"),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", flag_values=FLAGS)
_MODEL: Final = flags.DEFINE_string(
    "model",
    None,
    "Model to inspect instead of a bundle: a Hugging Face directory, a .gguf file, a name on the hub, or demo.",
    flag_values=FLAGS,
)
_FORMAT: Final = FormatFlag(FLAGS)
_PARAMETERS: Final = flags.DEFINE_string("parameters", None, "Glob of parameter paths to list.", flag_values=FLAGS)
_GRAPH: Final = flags.DEFINE_enum(
    "graph", None, list(GRAPH_FORMATS), "Format of the graph to print instead of the summary.", flag_values=FLAGS
)
_HASHES: Final = flags.DEFINE_bool(
    "hashes", True, "Read all files and compare their sha256 with the bundle's manifest.", flag_values=FLAGS
)
_OUTPUT: Final = flags.DEFINE_string("output", None, "Output file. Default: stdout.", flag_values=FLAGS)


def main() -> None:
    """Prints facts, parameters or the graph."""
    if _GRAPH.value is not None and _PARAMETERS.value is not None:
        raise InputError("--graph and --parameters each ask for one thing: give one of them")
    if (_BUNDLE.value is None) == (_MODEL.value is None):
        raise InputError("give either --bundle or --model")
    output = cli.output_file("output", _OUTPUT.value)
    if _BUNDLE.value is None:
        _put(_model(_MODEL.value or ""), output)
        return
    bundle = tapeline.Bundle(cli.user_path(_BUNDLE.value))
    bundle_facts, form = None, cast(Any, _GRAPH.value)
    if form is not None:
        text = tapeline.draw_graph(bundle, form)
    elif _PARAMETERS.value is not None:
        listed = tapeline.list_parameters(bundle, _PARAMETERS.value)
        text = json_text(listed) if _FORMAT.is_json else parameters_text(listed)
    else:
        bundle_facts = tapeline.inspect_bundle(bundle, hashes=_HASHES.value)
        text = json_text(bundle_facts) if _FORMAT.is_json else facts_text(bundle_facts)
    _put(text, output)
    if bundle_facts is not None:
        check_whole(bundle.path, bundle_facts["files"])


def _model(name: str) -> str:
    """Returns the text that describes a model."""
    if _GRAPH.value is not None:
        raise InputError("--graph is of a bundle: give --bundle, or export with --graph")
    if _PARAMETERS.value is not None:
        listed = tapeline.list_tensors(name, _PARAMETERS.value, base=cli.user_path(""))
        return json_text(listed) if _FORMAT.is_json else parameters_text(listed)
    described = tapeline.inspect_model(name, base=cli.user_path(""))
    return json_text(described) if _FORMAT.is_json else model_text(described)


def _put(text: str, output: Path | None) -> None:
    if output is None:
        cli.show(text)
    else:
        with cli.whole_file(output) as file:
            file.write(text.encode())
