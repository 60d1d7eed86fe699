"""The OpenAI-compatible server: text and HTTP around the engine of ``generation.engine``."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.server._adapters import AdapterNames
    from tapeline.server._app import create_app
    from tapeline.server._classifying_model import ClassifyingModel
    from tapeline.server._embedding_model import EmbeddingModel
    from tapeline.server._errors import RequestError
    from tapeline.server._loading import DraftOptions, Loading, bundle_bytes, bundle_source, load_bundle
    from tapeline.server._log import Log
    from tapeline.server._model import ServedModel, TextModel
    from tapeline.server._models import Models, ModelSource
    from tapeline.server._options import PREFIX_CACHES, ServerOptions
    from tapeline.server._prefix_file import PrefixDirectory
    from tapeline.server._process import serve
    from tapeline.server._progress import LoadProgress
    from tapeline.server._ranking_model import RankingModel
    from tapeline.server._service import Service
    from tapeline.server._text_to_text_model import TextToTextModel
    from tapeline.server._transcription_model import TranscriptionModel
    from tapeline.server._verification import Verification

export_lazily(__name__)
