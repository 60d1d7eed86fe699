"""A bundle's prefill and decode on a device, as generation wants a model."""

import numpy as np

from compile_hlo.bundle import Bundle
from compile_hlo.iree import DeviceTensor, Session
from lang_core import InputError


class BundleModel:
    """Holds the caches on the device and hands them from call to call; they are donated, so nothing is copied.

    Attributes:
        chunk: tokens per call of prefill.
        capacity: positions in the caches.
        recurrent: whether some layer has a state in place of a cache.
        vocabulary: V.
    """

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Makes empty caches.

        Raises:
            InputError: the bundle lacks prefill or decode, or is for several sequences at once.
        """
        present = [each.name for each in bundle.config.entry_points]
        if not {"prefill", "decode"} <= set(present):
            raise InputError(
                f"{bundle.path} has the entry points {', '.join(present)}; generation needs prefill and decode: export "
                f"with --entry_points=prefill,decode"
            )
        prefill = bundle.entry_point("prefill")
        tokens = prefill.args[0].spec
        if tokens.shape[0] != 1:
            raise InputError(
                f"{bundle.path} was exported with --batch={tokens.shape[0]}: generation takes one sequence"
            )
        caches = {argument.name: argument.spec for argument in prefill.args if argument.donated}
        self.chunk = tokens.shape[1]
        self.capacity = bundle.config.model["max_sequence"]
        self.recurrent = any(name.endswith("_state") for name in caches)
        self.vocabulary = prefill.results[0].shape[-1]
        self._prefill = session.function("prefill")
        self._decode = session.function("decode")
        self._caches: tuple[DeviceTensor, ...] = tuple(session.zeros(spec) for spec in caches.values())

    def prefill(self, token_ids: np.ndarray, position: int, last: int) -> np.ndarray:
        """Appends tokens i32 [1, chunk]; logits f32 [V] of row ``last``."""
        logits, *caches = self._prefill(token_ids, position, last, *self._caches)
        self._caches = tuple(caches)
        return logits.numpy()[0]

    def decode(self, token_id: int, position: int) -> np.ndarray:
        """Appends a token; its logits f32 [V]."""
        logits, *caches = self._decode(np.array([[token_id]], np.int32), position, *self._caches)
        self._caches = tuple(caches)
        return logits.numpy()[0]
