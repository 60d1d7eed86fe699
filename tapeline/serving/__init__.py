"""The engine of the server: requests of tokens in, events out; many answers at once from one model.

It sees tokens only: no text, no HTTP, no bundle. A model is anything with the ``SlotModel`` protocol.
"""

from tapeline.serving._drafts import Drafting
from tapeline.serving._engine import Engine, Ticket
from tapeline.serving._errors import BusyError, ConstraintError, EngineClosedError, ModelFailedError
from tapeline.serving._figures import EngineFigures
from tapeline.serving._pictures import PromptPicture
from tapeline.serving._pieces import canonical_pieces
from tapeline.serving._request import (
    AwaitedConstraint,
    EndEvent,
    Event,
    OnEvent,
    PromptEvent,
    TokenConstraint,
    TokenEvent,
    TokenRequest,
)
from tapeline.serving._settings import EngineSettings
from tapeline.serving._slots import SlotModel
from tapeline.serving._times import PartTimes

__all__ = [
    "AwaitedConstraint",
    "BusyError",
    "ConstraintError",
    "Drafting",
    "EndEvent",
    "Engine",
    "EngineClosedError",
    "EngineFigures",
    "EngineSettings",
    "Event",
    "ModelFailedError",
    "OnEvent",
    "PartTimes",
    "PromptEvent",
    "PromptPicture",
    "SlotModel",
    "Ticket",
    "TokenConstraint",
    "TokenEvent",
    "TokenRequest",
    "canonical_pieces",
]
