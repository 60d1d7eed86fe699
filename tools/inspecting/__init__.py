"""What tools:inspect says of a bundle."""

from tools.inspecting._facts import check_whole, facts, files, parameters
from tools.inspecting._graph import GRAPH_FORMATS, graph_text, write_graphs
from tools.inspecting._text import facts_text, parameters_text

__all__ = [
    "GRAPH_FORMATS",
    "check_whole",
    "facts",
    "facts_text",
    "files",
    "graph_text",
    "parameters",
    "parameters_text",
    "write_graphs",
]
