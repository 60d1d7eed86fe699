"""Tags: names of tensors inside a model, for dumps."""

import fnmatch
import re
from collections.abc import Sequence
from typing import Final

from lang_core._errors import InputError, near_names

_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")
_MOST_LISTED: Final = 24


def tag_name(module_path: str, name: str) -> str:
    """Returns a tag's full name: its own below the path of the module that sets it; labels of kernels are left out.

    >>> tag_name("model.layers.3.self_attn", "q"), tag_name("", "logits")
    ('model.layers.3.self_attn.q', 'logits')
    >>> tag_name("model.layers.3.self_attn.tapeline_ops#attention@v0:0123456789abcdef", "scores")
    'model.layers.3.self_attn.scores'
    """
    if "#" in module_path:
        module_path = module_path.partition("#")[0].rpartition(".")[0]
    return f"{module_path}.{name}" if module_path else name


class TagSelection:
    """Selection of tags by globs of their full names; ``*`` matches dots too.

    A tag that is set as a detail is chosen only by a glob that ends in the tag's own name, as ``*.scores`` does.

    >>> selection = TagSelection(["model.layers.[01].*"])
    >>> selection.selects("model.layers.1.input"), selection.selects("model.layers.2.input")
    (True, False)
    """

    def __init__(self, globs: Sequence[str]) -> None:
        self.globs: Final = tuple(globs)
        self._patterns: Final = [(glob, re.compile(fnmatch.translate(glob)).match) for glob in self.globs]
        self._matched: Final[set[str]] = set()
        self._met: Final[dict[str, None]] = {}  # names with * for numbers: as few for a hundred layers as for two

    def selects(self, name: str, detail: bool = False) -> bool:
        """Returns whether a tag is selected, and remembers that it was met."""
        self._met.setdefault(_NUMBER.sub("*", name))
        selected = False
        for glob, match in self._patterns:
            if match(name) and not (detail and glob.rpartition(".")[2] != name.rpartition(".")[2]):
                self._matched.add(glob)
                selected = True
        return selected

    def check(self) -> None:
        """Checks that every glob has selected a tag, once all tags were met.

        Raises:
            InputError: one has not; the message lists the tags.
        """
        for glob in self.globs:
            if glob not in self._matched:
                listed = ", ".join(list(self._met)[:_MOST_LISTED]) or "none"
                more = len(self._met) - _MOST_LISTED
                raise InputError(
                    f"tags {glob!r}: no tensor of the model has such a name{self._near(glob)}; its tags are {listed}"
                    f"{f' and {more} more' if more > 0 else ''}"
                )

    def _near(self, glob: str) -> str:
        near = near_names(_NUMBER.sub("*", glob), self._met)
        if near:
            return near
        ends = {f"*.{name.rpartition('.')[2]}": None for name in self._met}
        return near_names(f"*.{glob.rpartition('.')[2]}", ends)
