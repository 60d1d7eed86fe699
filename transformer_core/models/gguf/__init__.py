"""Models in GGUF files: metadata as configurations, tensors as parameters. docs/gguf.md lists supported files."""

from transformer_core.models.gguf._config import ARCHITECTURES
from transformer_core.models.gguf._model import GgufModel
from transformer_core.models.gguf._plan import GgufLayout, GgufPlan, plan_gguf
from transformer_core.models.gguf._sampling import sampling_metadata
