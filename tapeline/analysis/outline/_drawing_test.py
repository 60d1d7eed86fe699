"""Outlines as JSON, DOT and SVG: they say the same, nothing overlaps, and what is strange is escaped."""

import itertools
import json
import re
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from tapeline.analysis.outline import FORMATS, Box, Edge, FunctionOutline, Outline, Port, Repeat, boxes_of
from tapeline.analysis.outline._layout import Cell, place
from tapeline.analysis.outline._models_testing import outline_of

_SVG = "{http://www.w3.org/2000/svg}"


def _edges() -> st.SearchStrategy[list[tuple[int, int]]]:
    pair = st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda edge: edge[0] < edge[1])
    return st.lists(pair, max_size=25)


@settings(max_examples=150, deadline=None)
@given(_edges(), st.lists(st.integers(10, 90), min_size=12, max_size=12))
def test_cells_do_not_overlap_and_lines_go_down(edges: list[tuple[int, int]], sizes: list[int]) -> None:
    cells = [Cell(width, 100 - width) for width in sizes]
    lines = place(cells, edges)
    assert set(lines) == set(edges)
    for a, b in itertools.combinations(cells, 2):
        beside = abs(a.x - b.x) >= (a.width + b.width) / 2
        assert beside or a.y + a.height <= b.y or b.y + b.height <= a.y
    assert all(cell.x - cell.width / 2 >= -1e-6 and cell.y >= 0 for cell in cells)
    for (source, target), points in lines.items():
        assert points[0] == (cells[source].x, cells[source].y + cells[source].height)
        assert points[-1][1] == cells[target].y
        assert abs(points[-1][0] - cells[target].x) <= cells[target].width / 2
        assert all(below[1] > above[1] for above, below in itertools.pairwise(points))


def test_json_has_everything(tmp_path: Path) -> None:
    outline = outline_of(tmp_path / "m", "aabaab")
    fields = json.loads(FORMATS["json"](outline))
    assert (fields["schema"], fields["omitted"]) == (1, 0)
    assert [value["name"] for value in fields["functions"]] == ["forward", "block.layers.N", "block.layers.N.2"]
    forward = fields["functions"][0]
    assert set(forward) == {"name", "kind", "call_sites", "operations", "arguments", "results", "items", "edges"}
    assert forward["arguments"][1] == {"id": 1, "name": "layers.N.cache", "type": "f32[2,3]", "count": 6}
    repeat = forward["items"][1]
    assert (repeat["count"], repeat["items"][0]["count"]) == (2, 2)
    assert repeat["items"][1]["calls"] == "block.layers.N.2"
    assert set(repeat["items"][1]) == {"id", "path", "calls", "operations", "parameters"}
    assert set(forward["edges"][0]) == {"source", "target", "type", "carried"}


def test_dot_names_every_box_and_edge(tmp_path: Path) -> None:
    outline = outline_of(tmp_path / "m", "aabaab")
    text = FORMATS["dot"](outline)
    declared = set(re.findall(r"^ +(f\d+_\d+) \[", text, re.MULTILINE))
    wanted = {
        f"f{number}_{value.id}"
        for number, function in enumerate(outline.functions)
        for value in (*function.arguments, *function.results, *boxes_of(function.items))
    }
    assert declared == wanted
    ends = re.findall(r"^ +(f\d+_\d+) -> (f\d+_\d+) \[", text, re.MULTILINE)
    assert len(ends) == sum(len(function.edges) for function in outline.functions)
    assert {end for pair in ends for end in pair} <= declared
    assert text.count("{") == text.count("}")
    assert 'label="\N{MULTIPLICATION SIGN}2"' in text  # the frame of what repeats
    assert "layers.N \N{MULTIPLICATION SIGN}2" in text  # a box that repeats


def _strange() -> Outline:
    """Names that mean something in DOT and in XML."""
    box = Box(1, 'a"<b>&\\', None, {"add": 2}, {"w<1>": "f32[2]"})
    function = FunctionOutline("f<&>", "entry_point", [Port(0, "x&", "f32[]")], [], [Repeat(3, [box, Box(2, "c")])])
    function.edges = [Edge(0, 1, "f32[]"), Edge(1, 2, "f32[2]"), Edge(2, 1, "f32[2]", carried=True)]
    return Outline([function], omitted=7)


def test_svg_has_every_name(tmp_path: Path) -> None:
    for outline in (outline_of(tmp_path / "m", "aabaab"), _strange()):
        root = ElementTree.fromstring(FORMATS["svg"](outline))
        said = [value.text or "" for value in root.iter(f"{_SVG}text")]
        for function in outline.functions:
            assert any(text.startswith(f"{function.name} (") for text in said)
            for port in (*function.arguments, *function.results):
                assert any(text.split(" ")[0] == port.name for text in said)
            for box in boxes_of(function.items):
                assert box.path in said or box.path == ""
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for value in root.iter(f"{_SVG}rect"):
            if "x" in value.attrib:
                assert float(value.attrib["x"]) + float(value.attrib["width"]) <= width
                assert float(value.attrib["y"]) + float(value.attrib["height"]) <= height
    assert "and 7 more kernels" in said


def test_dot_escapes(tmp_path: Path) -> None:
    text = FORMATS["dot"](_strange())
    assert r'"a\"<b>&\\\nadd' in text
    assert 'omitted [label="7 more kernels"' in text


def test_the_empty_module_is_drawn() -> None:
    empty = Outline([FunctionOutline("f", "entry_point")])
    for form in FORMATS.values():
        assert "f" in form(empty)
