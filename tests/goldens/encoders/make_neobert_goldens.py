"""NeoBERT in torch, as its authors' code computes it, for ``make_encoder_goldens.py``: transformers has none."""

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import transformers
from torch import nn


class NeoBERTConfig(transformers.PretrainedConfig):
    """Configuration of a NeoBERT."""

    model_type = "neobert"


class _SwiGLU(nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.w12 = nn.Linear(size, 2 * inner, bias=False)
        self.w3 = nn.Linear(inner, size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.w12(x).chunk(2, dim=-1)
        return self.w3(nn.functional.silu(gate) * up)


class EncoderBlock(nn.Module):
    """Layer of a NeoBERT."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        size = config.hidden_size
        inner = 8 * ((int(2 * config.intermediate_size / 3) + 7) // 8)
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.wo = nn.Linear(size, size, bias=False)
        self.ffn = _SwiGLU(size, inner)
        self.attention_norm = nn.RMSNorm(size, config.norm_eps)
        self.ffn_norm = nn.RMSNorm(size, config.norm_eps)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Maps x [B, T, D] to [B, T, D]."""
        batch, tokens, size = x.shape
        fused = self.qkv(self.attention_norm(x)).view(batch, tokens, self.heads, 3 * size // self.heads)
        query, key, value = fused.chunk(3, axis=-1)
        query, key, value = (part.transpose(1, 2) for part in (_turned(query, turns), _turned(key, turns), value))
        seen = mask.bool()[:, None, None, :]
        attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        x = x + self.wo(attended.transpose(1, 2).reshape(batch, tokens, size))
        return x + self.ffn(self.ffn_norm(x))


def _turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None, :]).flatten(3)


class _Base(transformers.PreTrainedModel):
    config_class = NeoBERTConfig
    base_model_prefix = "model"
    all_tied_weights_keys: ClassVar[dict[str, str]] = {}

    def _init_weights(self, module: nn.Module) -> None:
        """Leaves the weights as they are: a case has its own."""


class NeoBERT(_Base):
    """Encoder without a head."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder = nn.Embedding(config.vocab_size, config.hidden_size)
        self.transformer_encoder = nn.ModuleList(EncoderBlock(config) for _ in range(config.num_hidden_layers))
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """Computes the last layer's states."""
        size = self.config.hidden_size // self.config.num_attention_heads
        frequencies = 1.0 / 10000.0 ** (torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(input_ids.shape[1]), frequencies)
        turns, x = torch.polar(torch.ones_like(angles), angles), self.encoder(input_ids)
        for layer in self.transformer_encoder:
            x = layer(x, attention_mask, turns)
        return {"last_hidden_state": self.layer_norm(x)}


class NeoBERTLMHead(_Base):
    """Masked language model."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = NeoBERT(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """Computes the logits of each token."""
        return {"logits": self.decoder(self.model(input_ids, attention_mask)["last_hidden_state"])}


class NeoBERTForSequenceClassification(_Base):
    """Classifier of texts."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = NeoBERT(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """Computes the logits of each text."""
        first = self.model(input_ids, attention_mask)["last_hidden_state"][:, 0, :]
        return {"logits": self.classifier(torch.tanh(self.dense(first)))}


transformers.AutoConfig.register("neobert", NeoBERTConfig)
MODELS = SimpleNamespace(
    NeoBERT=NeoBERT,
    NeoBERTLMHead=NeoBERTLMHead,
    NeoBERTForSequenceClassification=NeoBERTForSequenceClassification,
)
"""Classes by architecture."""
