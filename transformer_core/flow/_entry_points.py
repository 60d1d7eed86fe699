"""Entry points of several builds of one recipe."""

import itertools
from collections.abc import Sequence

from lang_core import ConfigError, EntryPoint
from transformer_core.flow._model import FlowModel


def entry_points(models: Sequence[FlowModel]) -> tuple[EntryPoint, ...]:
    """Returns the entry points of builds of one recipe, for one module and one archive.

    Raises:
        ConfigError: two have one name, or a parameter of one path has two specs.
    """
    names = [model.profile.name for model in models]
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"entry points: expected at least one, each once; found {', '.join(names) or 'none'}")
    for first, other in itertools.pairwise(models):
        specs = {path: parameter.spec for path, parameter in first.named_parameters()}
        for path, parameter in other.named_parameters():
            if specs.get(path, parameter.spec) != parameter.spec:
                raise ConfigError(
                    f"parameter {path!r}: {first.profile.name} has {specs[path]!r}, {other.profile.name} "
                    f"{parameter.spec!r}: entry points share weights, so their profiles need one dtype"
                )
    return tuple(model.entry_point() for model in models)
