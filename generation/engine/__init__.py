"""The engine: requests of tokens in, events out; many answers at once from one model.

It handles tokens only, not text, HTTP or bundles. A model is anything with the ``ModelRunner`` protocol. ``StepEngine``
works in its caller's thread (``tapeline.load``), ``Engine`` in one of its own (the server).
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from generation.engine._answer_steps import AnswerSteps
    from generation.engine._archive import ArchivedBlock, PrefixArchive
    from generation.engine._draft_rows import DraftRow, DraftRows
    from generation.engine._drafts import Drafting
    from generation.engine._engine import Engine
    from generation.engine._errors import BusyError, ConstraintError, EngineClosedError, ModelFailedError
    from generation.engine._figures import EngineFigures
    from generation.engine._one_row import OneRow, SequenceModel
    from generation.engine._pictures import PromptPicture, image_places, ordered_rows
    from generation.engine._pieces import canonical_pieces
    from generation.engine._pool import PageCopy, PagePool, PagesError
    from generation.engine._prefixes import RowPrefix
    from generation.engine._request import (
        AwaitedConstraint,
        EndEvent,
        Event,
        OnEvent,
        PromptEvent,
        RowAdapter,
        TokenConstraint,
        TokenEvent,
        TokenRequest,
    )
    from generation.engine._runner import ModelRunner
    from generation.engine._settings import EngineSettings
    from generation.engine._steps import StepEngine, Ticket
    from generation.engine._times import PartTimes

export_lazily(__name__)
