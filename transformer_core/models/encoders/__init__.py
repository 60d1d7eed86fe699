"""Encoders and other models besides decoders, one family per file, and their shared layers."""

from transformer_core.models.encoders._albert import ALBERT
from transformer_core.models.encoders._ast import AST
from transformer_core.models.encoders._bart import BartForConditionalGeneration
from transformer_core.models.encoders._bart_config import BartConfig
from transformer_core.models.encoders._bart_families import BART_GROUP
from transformer_core.models.encoders._beit import BEIT
from transformer_core.models.encoders._bert import (
    BERT,
    BERT_FOR_MASKED_LM,
    BERT_FOR_SEQUENCE_CLASSIFICATION,
    BERT_TOKEN_HEADS,
)
from transformer_core.models.encoders._bert_kin import BERT_KIN
from transformer_core.models.encoders._clip import CLIP, CLIP_VISION, ClipModel, ClipVisionModel
from transformer_core.models.encoders._convnext import CONVNEXT
from transformer_core.models.encoders._deberta import DEBERTA
from transformer_core.models.encoders._deberta_v2 import DEBERTA_V2
from transformer_core.models.encoders._decoder_encoder import DecoderEncoder, DecoderEncoderConfig
from transformer_core.models.encoders._decoder_families import DECODER_ENCODERS
from transformer_core.models.encoders._distilbert import DISTILBERT
from transformer_core.models.encoders._electra import ELECTRA
from transformer_core.models.encoders._esm import ESM
from transformer_core.models.encoders._gte import GTE
from transformer_core.models.encoders._jina_embeddings_v3 import JINA_EMBEDDINGS_V3
from transformer_core.models.encoders._layoutlmv3 import LAYOUTLMV3
from transformer_core.models.encoders._longformer import LONGFORMER
from transformer_core.models.encoders._mobilebert import MOBILEBERT
from transformer_core.models.encoders._modernbert import MODERNBERT
from transformer_core.models.encoders._mpnet import MPNET
from transformer_core.models.encoders._neobert import NEOBERT
from transformer_core.models.encoders._nomic_bert import NOMIC_BERT
from transformer_core.models.encoders._pair import PairConfig, PairModel
from transformer_core.models.encoders._pair_classifiers import PAIR_CLASSIFIERS
from transformer_core.models.encoders._roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA, XLM_ROBERTA_XL
from transformer_core.models.encoders._roformer import ROFORMER
from transformer_core.models.encoders._segformer import SEGFORMER
from transformer_core.models.encoders._siglip import SIGLIP_VISION, SiglipVisionModel
from transformer_core.models.encoders._siglip_pair import SIGLIP, SiglipModel
from transformer_core.models.encoders._sound import SoundConfig, SoundModel
from transformer_core.models.encoders._stack import EncoderConfig, EncoderLayer, EncoderStack, StackConfig
from transformer_core.models.encoders._swin import SWIN
from transformer_core.models.encoders._t5 import (
    MULTILINGUAL_T5,
    T5,
    T5_ENCODER,
    T5EncoderModel,
    T5ForConditionalGeneration,
)
from transformer_core.models.encoders._t5_config import T5Config
from transformer_core.models.encoders._t5gemma import T5GEMMA, T5GemmaConfig, T5GemmaForConditionalGeneration
from transformer_core.models.encoders._text import TextConfig, TextModel
from transformer_core.models.encoders._text_heads import (
    TextForMaskedLM,
    TextForQuestionAnswering,
    TextForSequenceClassification,
    TextForTokenClassification,
)
from transformer_core.models.encoders._vision import VisionConfig, VisionModel
from transformer_core.models.encoders._vit import (
    VIT,
    VIT_FOR_IMAGE_CLASSIFICATION,
    ViTForImageClassification,
    ViTModel,
)
from transformer_core.models.encoders._vit_kinds import DEIT, DINOV2, DINOV3, VitKindModel
from transformer_core.models.encoders._vit_mae import VIT_MAE
from transformer_core.models.encoders._wav2vec2 import HUBERT, WAV2VEC2
from transformer_core.models.encoders._wavlm import WAVLM
from transformer_core.models.encoders._whisper import WHISPER, WhisperForConditionalGeneration
from transformer_core.models.encoders._whisper_config import WhisperConfig
from transformer_core.models.encoders._yolos import YOLOS

ENCODERS = (
    BERT,
    BERT_FOR_MASKED_LM,
    BERT_FOR_SEQUENCE_CLASSIFICATION,
    *BERT_TOKEN_HEADS,
    *BERT_KIN,
    *ROFORMER,
    *ROBERTA,
    *XLM_ROBERTA,
    *XLM_ROBERTA_XL,
    *CAMEMBERT,
    *MPNET,
    *DISTILBERT,
    *ELECTRA,
    *ALBERT,
    *DEBERTA,
    *DEBERTA_V2,
    *MODERNBERT,
    *LAYOUTLMV3,
    *LONGFORMER,
    *MOBILEBERT,
    *NEOBERT,
    *NOMIC_BERT,
    *JINA_EMBEDDINGS_V3,
    *GTE,
    *ESM,
    VIT,
    VIT_FOR_IMAGE_CLASSIFICATION,
    VIT_MAE,
    *DINOV2,
    DINOV3,
    *DEIT,
    *BEIT,
    *SWIN,
    *CONVNEXT,
    *SEGFORMER,
    YOLOS,
    SIGLIP,
    SIGLIP_VISION,
    CLIP,
    CLIP_VISION,
    *PAIR_CLASSIFIERS,
    WHISPER,
    *WAV2VEC2,
    *HUBERT,
    *WAVLM,
    *AST,
    T5,
    T5_ENCODER,
    *MULTILINGUAL_T5,
    T5GEMMA,
    *BART_GROUP,
)
"""Families of encoders."""

__all__ = [
    "BartConfig",
    "BartForConditionalGeneration",
    "ClipModel",
    "ClipVisionModel",
    "DECODER_ENCODERS",
    "ENCODERS",
    "DecoderEncoder",
    "DecoderEncoderConfig",
    "EncoderConfig",
    "EncoderLayer",
    "EncoderStack",
    "PairConfig",
    "PairModel",
    "SiglipModel",
    "SiglipVisionModel",
    "SoundConfig",
    "SoundModel",
    "StackConfig",
    "T5Config",
    "T5EncoderModel",
    "T5ForConditionalGeneration",
    "T5GemmaConfig",
    "T5GemmaForConditionalGeneration",
    "TextConfig",
    "TextForMaskedLM",
    "TextForQuestionAnswering",
    "TextForSequenceClassification",
    "TextForTokenClassification",
    "TextModel",
    "ViTForImageClassification",
    "ViTModel",
    "VisionConfig",
    "VitKindModel",
    "VisionModel",
    "WhisperConfig",
    "WhisperForConditionalGeneration",
]
