"""Opens a bundle as a runner of the engine, and opens it anew after a call of it has failed."""

from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np

from generation.engine import EngineSettings, ModelRunner, OneRow
from lang_core import InputError, TensorSpec, checked_choices
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.runners._measured_invariance import open_slots
from tapeline.runners._model import BundleModel, encoder_arguments
from tapeline.runners._slots import BundleSlots

_STORE: Final = 256 << 20  # bytes


class RowSource(Protocol):
    """Opens a bundle's runner. The previous runner must not be used any more."""

    def open(self) -> ModelRunner:
        """Returns a runner with empty rows.

        Raises:
            InputError: the bundle lacks the necessary entry points.
        """
        ...

    def settings(self, runner: ModelRunner) -> EngineSettings:
        """Returns settings of an engine that answers in its caller's thread."""
        ...

    @property
    def cache_specs(self) -> Mapping[str, TensorSpec]:
        """Specs of the caches and states of all rows of the runner, by name."""
        ...

    @property
    def token_bytes(self) -> int:
        """Bytes of token ids and their positions that the runner has moved so far."""
        ...

    @property
    def head_calls(self) -> int:
        """Calls of the runner's multi-token prediction head so far."""
        ...


class SlotSource:
    """Opens a bundle with slots: a ``RowSource``."""

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Opens nothing yet."""
        self._bundle: Final = bundle
        self._session: Final = session
        self._slots: BundleSlots | None = None

    def open(self) -> BundleSlots:
        """Returns a runner with empty rows; how far calls agree in their bits is measured once."""
        if self._slots is None:
            self._slots = open_slots(self._bundle, self._session)
        else:
            self._slots = BundleSlots(
                self._bundle, self._session, invariance=self._slots.invariance, adapters=self._slots.adapters
            )
        return self._slots

    def settings(self, runner: ModelRunner) -> EngineSettings:
        """Returns settings for rows of tokens with the bits of single steps."""
        del runner
        return EngineSettings(max_waiting=1 << 30, deadline=None, decode_after_prompts=False)

    @property
    def cache_specs(self) -> Mapping[str, TensorSpec]:
        """Specs of the caches of all rows of the runner, by name."""
        assert self._slots is not None
        return self._slots.cache_specs

    @property
    def token_bytes(self) -> int:
        """Bytes of token ids, rows and positions that the runner has moved so far."""
        return 0 if self._slots is None else self._slots.token_bytes

    @property
    def head_calls(self) -> int:
        """0, as rows lack a head."""
        return 0


@checked_choices
class OneRowSource:
    """Opens a bundle without slots: a ``RowSource``."""

    def __init__(
        self, bundle: Bundle, session: Session, inputs: Mapping[str, np.ndarray | int] | None, *, drafts: bool
    ) -> None:
        """Opens nothing yet.

        Args:
            bundle: the bundle.
            session: the bundle's.
            inputs: arguments of the bundle's encoder by name, of the shapes of their specs.
            drafts: whether the bundle has to verify drafts.
        """
        self._bundle: Final = bundle
        self._session: Final = session
        self._inputs: Final = inputs
        self._drafts: Final = drafts
        self._model: BundleModel | None = None

    def open(self) -> OneRow:
        """Returns a runner with an empty row.

        Raises:
            InputError: the bundle lacks prefill or decode, or is for several sequences; or drafts need ``verify``.
        """
        bundle = self._bundle
        model = BundleModel(bundle, self._session, encoder_arguments(bundle, self._inputs))
        if self._drafts and not model.verify_tokens:
            names = ",".join(entry_point.name for entry_point in bundle.config.entry_points)
            raise InputError(
                f"{bundle.path} has the entry points {names}; speculation needs verify: export with "
                f"entry_points={names},verify and verify_tokens=8"
            )
        self._model = model
        return OneRow(model)

    def opened(self) -> BundleModel:
        """Returns the model of the runner, which is open."""
        assert self._model is not None
        return self._model

    @property
    def cache_specs(self) -> Mapping[str, TensorSpec]:
        """Specs of the caches and states, by name."""
        return self.opened().cache_specs

    @property
    def token_bytes(self) -> int:
        """Bytes of token ids and their positions that the runner has moved so far."""
        return 0 if self._model is None else self._model.token_bytes

    @property
    def head_calls(self) -> int:
        """Calls of the model's multi-token prediction head so far."""
        return 0 if self._model is None else self._model.head_calls

    def settings(self, runner: ModelRunner) -> EngineSettings:
        """Returns settings for one row.

        Verified drafts may round otherwise than single steps. The row itself is the store of a model that can go on
        from any place; of any other one, the store keeps a state of each prompt. Of pictures it keeps nothing, as a
        piece that begins early needs the embeddings before it.
        """
        state = sum(spec.nbytes for spec in self.cache_specs.values())
        stores = runner.recurrent and runner.image_token is None
        return EngineSettings(
            max_waiting=1 << 30,
            deadline=None,
            exact=False,
            checkpoint_pieces=False,
            decode_after_prompts=False,
            store_bytes=max(_STORE, 2 * state) if stores else 0,
        )
