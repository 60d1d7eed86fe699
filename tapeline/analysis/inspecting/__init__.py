"""Facts of bundles and models, for a person or a program; nothing is loaded or run."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.analysis.inspecting._facts import check_whole, facts, files, parameters
    from tapeline.analysis.inspecting._graph import GRAPH_FORMATS, graph_text, write_graphs
    from tapeline.analysis.inspecting._model_facts import model_facts, stored_tensors
    from tapeline.analysis.inspecting._text import facts_text, model_text, parameters_text

export_lazily(__name__)
