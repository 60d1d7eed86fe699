"""Bundles as rows for the engine of ``generation``: what opens them, and how far their calls agree."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.runners._adapters import AdapterTables, adapter_bytes
    from tapeline.runners._invariance import Invariance, invariance_fields
    from tapeline.runners._measured_invariance import measured_invariance, open_slots
    from tapeline.runners._model import ENCODE, BundleModel, encoded, encoder_arguments, ordered_inputs
    from tapeline.runners._pictures import padded_call, squares_of_patches, takes_pictures
    from tapeline.runners._rope_lengths import RopeLengths
    from tapeline.runners._row_source import OneRowSource, RowSource, SlotSource
    from tapeline.runners._slot_rows import position_axes
    from tapeline.runners._slots import SLOTS, BundleSlots
    from tapeline.runners._sources import BundleBeams, SourceModel, takes_texts

export_lazily(__name__)
