"""Fine-tunes a causal language model on JAX: a LoRA adapter, or all parameters.

train --model DIR --data FILE --output DIR [--lora R] [--steps N] [--mesh dp=2] [--resume]

The data are a text file, or JSON lines of objects with text or messages. The output is an adapter in PEFT's format with
--lora, and a checkpoint without; export takes both.
"""

import typing
from typing import Final

from absl import flags

import tapeline
from run_jax.training import SCHEDULES, is_writer
from tapeline.cli import TerminalProgress, user_path
from tapeline.command._flags import flag_translator
from tapeline.finetuning import TrainOptions

FLAGS: Final = flags.FlagValues()
EVERY_RANK: Final = True  # each computes its rows, and one of them writes

_DEFAULTS: Final = TrainOptions()
_MODEL: Final = flags.DEFINE_string(
    "model",
    None,
    "A Hugging Face directory, a .gguf file, org/name[@revision] of the hub, or demo.",
    required=True,
    flag_values=FLAGS,
)
_DATA: Final = flags.DEFINE_string(
    "data", None, "A text file, or a .jsonl file with text or messages per line.", required=True, flag_values=FLAGS
)
_OUTPUT: Final = flags.DEFINE_string(
    "output", None, "The directory of the adapter or the checkpoint.", required=True, flag_values=FLAGS
)
_RESUME: Final = flags.DEFINE_bool(
    "resume",
    False,
    "Go on with the training that was killed; from the beginning where there is none.",
    flag_values=FLAGS,
)
_LORA_TARGETS: Final = flags.DEFINE_list(
    "lora_targets",
    [],
    "A comma list of linear layers, such as q_proj,v_proj; all but the head by default.",
    flag_values=FLAGS,
)
_INTEGERS: Final = {
    "lora": "The rank of a LoRA adapter; without it all parameters are trained.",
    "steps": "Steps.",
    "batch": "Sequences per step, or per accumulated part of one.",
    "accumulate": "Parts of a step whose gradients are added up.",
    "sequence": "Tokens per sequence.",
    "warmup": "First steps in which the rate rises; a tenth of the steps, 100 at most, by default.",
    "seed": "The seed of the order of the data and of the adapter's first values.",
    "save_every": "Steps between two checkpoints.",
}
_NUMBERS: Final = {
    "lora_alpha": "The adapter's changes are scaled by lora_alpha / lora; twice the rank by default.",
    "learning_rate": "The largest rate; 2e-4 with --lora, 2e-5 without by default.",
    "weight_decay": "Decay of matrices per step, relative to the rate.",
    "largest_norm": "The bound of the norm of the gradients; 0 for none.",
}
for _name, _help in _INTEGERS.items():
    flags.DEFINE_integer(_name, getattr(_DEFAULTS, _name), _help, flag_values=FLAGS)
for _name, _help in _NUMBERS.items():
    flags.DEFINE_float(_name, getattr(_DEFAULTS, _name), _help, flag_values=FLAGS)
flags.DEFINE_enum(
    "schedule", _DEFAULTS.schedule, list(SCHEDULES), "How the rate falls after the warm-up.", flag_values=FLAGS
)
flags.DEFINE_enum(
    "dtype",
    _DEFAULTS.dtype,
    ["f32", "bf16"],
    "Dtype of activations and of weights in products; what is trained is kept in f32.",
    flag_values=FLAGS,
)
flags.DEFINE_string("mesh", None, "Devices, such as dp=2 or fsdp=2,tp=2; one by default.", flag_values=FLAGS)


def main() -> None:
    """Trains, and prints the output's path."""
    names = [*_INTEGERS, *_NUMBERS, "schedule", "dtype", "mesh"]
    given: typing.Any = {name: FLAGS[name].value for name in names}
    with TerminalProgress(flag_translator(FLAGS)) as progress:
        trained = tapeline.train(
            _MODEL.value,
            _DATA.value,
            _OUTPUT.value,
            resume=_RESUME.value,
            progress=progress,
            base=user_path(""),
            lora_targets=tuple(_LORA_TARGETS.value),
            **given,
        )
    if is_writer():
        print(trained.path)
