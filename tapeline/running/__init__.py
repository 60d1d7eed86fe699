"""Use of a bundle on a device: generation, conversations, embeddings, transcriptions, scores."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.running._answerer import Answer, QuestionAnswerer
    from tapeline.running._arrays import encoder_inputs, read_inputs, write_results
    from tapeline.running._caller import let_workers_run
    from tapeline.running._classifier import HYPOTHESIS, TextClassifier, classifies
    from tapeline.running._conversation import Conversation
    from tapeline.running._dump import DUMP_LIMITS, DumpOptions
    from tapeline.running._embedder import SentenceEmbedder
    from tapeline.running._filler import Filling, MaskFiller
    from tapeline.running._generation import (
        MOST_NEW_TOKENS,
        GeneratedToken,
        GenerateKeywords,
        GenerateOptions,
        Generation,
        TokenStream,
    )
    from tapeline.running._load import load
    from tapeline.running._loaded import LoadedModel
    from tapeline.running._multi_vector import LateRanker, MultiVectorEmbedder, TokenVectors, has_token_vectors
    from tapeline.running._picture_forms import PICTURE_FORMS, PicturePart, TiledPicture
    from tapeline.running._picture_prompts import PicturePrompts
    from tapeline.running._pictures import ImageEmbedder, ImageSource
    from tapeline.running._prompt_cache import PromptCacheFile
    from tapeline.running._ranker import TextRanker, ranks
    from tapeline.running._row_drafts import row_drafting
    from tapeline.running._scores import Scores
    from tapeline.running._sparse import SparseEmbedder
    from tapeline.running._speculating import speculating
    from tapeline.running._speech import hears_frames
    from tapeline.running._stats import GenerationStats, dispatches
    from tapeline.running._tagger import Aggregation, Tag, TaggedText, TokenTagger
    from tapeline.running._text_array import TextArray, similarities
    from tapeline.running._zero_shot import PICTURE_HYPOTHESIS

export_lazily(__name__)
