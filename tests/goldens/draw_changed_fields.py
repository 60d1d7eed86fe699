"""Change each field of a family's config.json in turn and hold the model to transformers: run by hand (see README.md).

    python -m tests.goldens.draw_changed_fields                       # all families of golden cases: half an hour
    python -m tests.goldens.draw_changed_fields --family hy_v3        # one
    python -m tests.goldens.draw_changed_fields --part 2 --parts 4    # every fourth family from the second on

Fields are those that transformers' configuration has, whether a golden case or a drawn space sets them or not: a field
that a reader here overlooks is a silent wrong result, and shows as a difference.
"""

import argparse
import copy
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import transformers
from transformers import AutoConfig

from tests.goldens._case_types import Config
from tests.goldens.cases import CASES
from tests.goldens.draw_families import Compare, Make, compared, expected_of, outcome_of

# Fields of every configuration that say how it is stored, trained or asked, not what is computed.
_IDLE: Final = frozenset(
    "architectures model_type transformers_version dtype torch_dtype use_cache initializer_range _name_or_path "
    "output_attentions output_hidden_states return_dict chunk_size_feed_forward id2label label2id problem_type "
    "auto_map vocab_size bos_token_id eos_token_id pad_token_id output_router_logits router_aux_loss_coef "
    "is_encoder_decoder num_labels tokenizer_class keys_to_ignore_at_inference ignore_keys_at_rope_validation".split()
)
_DROPOUT: Final = ("dropout", "pdrop", "jitter", "summary_")
_ACTIVATIONS: Final = ("silu", "gelu", "relu", "gelu_pytorch_tanh", "relu2", "gelu_new", "quick_gelu")
_LAYERS: Final = ("attention", "full_attention", "sliding_attention", "linear_attention", "conv", "mamba", "moe", "mlp")
_SCALINGS: Final[tuple[Config, ...]] = (
    {"rope_type": "default", "rope_theta": 123.0},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "attention_factor": 1.3,
        "beta_fast": 8.0,
        "beta_slow": 2.0,
    },
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    {"rope_type": "proportional", "partial_rotary_factor": 0.5},
)


def main() -> int:
    """Compare the decoders asked for; 1 where one differs, or fails without a typed error."""
    return change_families(__doc__, CASES, expected_of, compared)


def change_families(description: str | None, cases: Mapping[str, Any], make: Make, compare: Compare) -> int:
    """Compares the first case of each architecture, with each field changed; 1 where one differs or fails."""
    firsts = {case.config["architectures"][0]: case.config for case in reversed(cases.values())}
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="*", default=[], help="architectures or model types; all if left out")
    parser.add_argument("--part", type=int, default=1, help="number of the part to run, from 1")
    parser.add_argument("--parts", type=int, default=1, help="number of parts that the families are split into")
    parser.add_argument("--refused", action="store_true", help="print each refusal")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    names = [
        name
        for name in sorted(firsts)
        if not options.family or {name, firsts[name]["model_type"]} & set(options.family)
    ]
    changed = names[options.part - 1 :: options.parts]
    return 1 if sum(_change(name, firsts[name], make, compare, options.refused) for name in changed) else 0


def _change(name: str, config: Config, make: Make, compare: Compare, show_refused: bool) -> int:
    """Compares a family with each field changed; returns the number of faults."""
    counts: Counter[str] = Counter()
    for field, value in (("", None), *_changes(config)):
        label = f"{name}: {field}={value!r}" if field else f"{name} as it is"
        changed = {**config, field: value} if field else config
        outcome = outcome_of(changed, random.Random(5), make, compare, label)
        counts[outcome.kind] += 1
        if show_refused and outcome.kind == "refused":
            print(f"{label}: {outcome.reason}")
    print(f"{name}: {', '.join(f'{count} {kind}' for kind, count in sorted(counts.items()))}", flush=True)
    return counts["differs"] + counts["failed"]


def _changes(config: Config) -> Iterator[tuple[str, Any]]:
    """Yields fields of transformers' configuration with other values than the case's."""
    read = AutoConfig.for_model(config["model_type"]).__class__.from_dict(copy.deepcopy(dict(config)))
    fields = {**json.loads(read.to_json_string(use_diff=False)), **config}
    for name in sorted(fields):
        if name not in _IDLE and not any(part in name for part in _DROPOUT):
            yield from ((name, value) for value in _others(name, fields[name]))


def _others(name: str, value: Any) -> list[Any]:
    """Returns values that a field may have in place of its own."""
    if isinstance(value, bool):
        return [not value]
    if name in ("rope_parameters", "rope_scaling"):
        return _ropes(value)
    if isinstance(value, int):
        return sorted({value + 1, value * 2, value // 2, value - 1} - {value})
    if isinstance(value, float):
        return sorted({value / 2, value * 1.7 + 0.01, 0.0} - {value})
    if isinstance(value, str):
        return [other for other in (_ACTIVATIONS if "act" in name else ["other"]) if other != value]
    if isinstance(value, Mapping):
        return [{**value, key: other} for key, inner in value.items() for other in _others(str(key), inner)]
    if isinstance(value, list):
        firsts = _LAYERS if all(isinstance(item, str) for item in value) else [True, 7]
        return [[first, *value[1:]] for first in firsts if value and first != value[0]] + [value[1:]]
    return [True, 4, 0.5]  # null or absent: whatever would set it


def _ropes(value: Any) -> list[Any]:
    """Returns other values of ``rope_parameters``, of one kind of layer at a time where it has several."""
    if not isinstance(value, Mapping) or not any(isinstance(inner, Mapping) for inner in value.values()):
        return [{"rope_theta": 10000.0, **scaling} for scaling in _SCALINGS]
    kinds = [kind for kind, inner in value.items() if isinstance(inner, Mapping)]
    return [{**value, kind: {"rope_theta": 10000.0, **scaling}} for kind in kinds for scaling in _SCALINGS]


if __name__ == "__main__":
    sys.exit(main())
