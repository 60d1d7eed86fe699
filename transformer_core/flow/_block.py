"""The protocol of blocks."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from lang_core import Module
from transformer_core.flow._value import FlowValue

if TYPE_CHECKING:
    from transformer_core.flow._context import FlowContext


class Block(Module):
    """A module that knows of the flow: of streams, kept values, weights by key, side outputs.

    A package of one's own derives from it and hands what it makes to ``ModelFlow.stage``; nothing is registered.
    Parameters and modules that are attributes have paths, as in every module.

    >>> from lang_core import EagerExecutionContext
    >>> from transformer_core.flow import CompileProfile, ModelFlow
    >>> import numpy as np
    >>> class Doubled(Block):
    ...     def run(self, flow, x):
    ...         return flow.emit("add", x, x, spec=x.spec)
    >>> recipe = ModelFlow("double").input("x", ("T", 2)).stage("doubled", lambda build: Doubled())
    >>> model = recipe.build(CompileProfile.preset("encoder", sequence=1))
    >>> model(EagerExecutionContext(), np.array([[1, 2]], np.float32))["output"].numpy().tolist()
    [[2.0, 4.0]]
    """

    @abstractmethod
    def run(self, flow: "FlowContext", *values: FlowValue) -> FlowValue | tuple[FlowValue, ...]:
        """What the block makes of a value, or of those of the streams and names that its stage lists.

        Args:
            flow: the run. ``flow.run(self.part, x)`` runs a module inside of this one.
            values: one, or one per stream and then one per name.

        Returns:
            A value, or one per stream. What a value claims to be is compared with its tensor.
        """
