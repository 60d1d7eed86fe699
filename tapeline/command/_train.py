"""Fine-tunes a causal language model on JAX: a LoRA adapter, or all parameters.

train --model DIR --data FILE --output DIR [--lora R] [--steps N] [--mesh dp=2] [--resume]

The data are a text file, or JSON lines of objects with text or messages. The output is an adapter in PEFT's format with
--lora, and a checkpoint without; export takes both.
"""

import typing
from typing import Final, Literal

from absl import flags

import tapeline
from tapeline.cli import TerminalProgress, user_path
from tapeline.command._flags import flag_translator
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.finetuning import SCHEDULES, Schedule, TrainOptions, writes_output

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("model",),)
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
_LORA: Final = flags.DEFINE_integer(
    "lora", None, "The rank of a LoRA adapter; without it all parameters are trained.", flag_values=FLAGS
)
_LORA_ALPHA: Final = flags.DEFINE_float(
    "lora_alpha",
    None,
    "The adapter's changes are scaled by lora_alpha / lora; twice the rank by default.",
    flag_values=FLAGS,
)
_STEPS: Final = flags.DEFINE_integer("steps", _DEFAULTS.steps, "Steps.", flag_values=FLAGS)
_BATCH: Final = flags.DEFINE_integer(
    "batch", _DEFAULTS.batch, "Sequences per step, or per accumulated part of one.", flag_values=FLAGS
)
_ACCUMULATE: Final = flags.DEFINE_integer(
    "accumulate", _DEFAULTS.accumulate, "Parts of a step whose gradients are added up.", flag_values=FLAGS
)
_SEQUENCE: Final = flags.DEFINE_integer("sequence", _DEFAULTS.sequence, "Tokens per sequence.", flag_values=FLAGS)
_LEARNING_RATE: Final = flags.DEFINE_float(
    "learning_rate", None, "The largest rate; 2e-4 with --lora, 2e-5 without by default.", flag_values=FLAGS
)
_WARMUP: Final = flags.DEFINE_integer(
    "warmup",
    None,
    "First steps in which the rate rises; a tenth of the steps, 100 at most, by default.",
    flag_values=FLAGS,
)
_SCHEDULE: Final = flags.DEFINE_enum(
    "schedule", _DEFAULTS.schedule, list(SCHEDULES), "How the rate falls after the warm-up.", flag_values=FLAGS
)
_WEIGHT_DECAY: Final = flags.DEFINE_float(
    "weight_decay", _DEFAULTS.weight_decay, "Decay of matrices per step, relative to the rate.", flag_values=FLAGS
)
_LARGEST_NORM: Final = flags.DEFINE_float(
    "largest_norm", _DEFAULTS.largest_norm, "The bound of the norm of the gradients; 0 for none.", flag_values=FLAGS
)
_DTYPE: Final = flags.DEFINE_enum(
    "dtype",
    _DEFAULTS.dtype,
    ["f32", "bf16"],
    "Dtype of activations and of weights in products; what is trained is kept in f32.",
    flag_values=FLAGS,
)
_MESH: Final = flags.DEFINE_string(
    "mesh", None, "Devices, such as dp=2 or fsdp=2,tp=2; one by default.", flag_values=FLAGS
)
_SEED: Final = flags.DEFINE_integer(
    "seed", _DEFAULTS.seed, "The seed of the order of the data and of the adapter's first values.", flag_values=FLAGS
)
_SAVE_EVERY: Final = flags.DEFINE_integer(
    "save_every", _DEFAULTS.save_every, "Steps between two checkpoints.", flag_values=FLAGS
)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Trains, and prints the output's path."""
    with TerminalProgress(flag_translator(FLAGS)) as progress:
        trained = tapeline.train(
            _MODEL.value,
            _DATA.value,
            _OUTPUT.value,
            resume=_RESUME.value,
            progress=progress,
            base=user_path(""),
            lora_targets=tuple(_LORA_TARGETS.value),
            lora=_LORA.value,
            lora_alpha=_LORA_ALPHA.value,
            steps=_STEPS.value,
            batch=_BATCH.value,
            accumulate=_ACCUMULATE.value,
            sequence=_SEQUENCE.value,
            learning_rate=_LEARNING_RATE.value,
            warmup=_WARMUP.value,
            schedule=typing.cast(Schedule, _SCHEDULE.value),
            weight_decay=_WEIGHT_DECAY.value,
            largest_norm=_LARGEST_NORM.value,
            dtype=typing.cast(Literal["f32", "bf16"], _DTYPE.value),
            mesh=_MESH.value,
            seed=_SEED.value,
            save_every=_SAVE_EVERY.value,
        )
    if not writes_output():
        return
    if _FORMAT.is_json:
        put_json({"output": trained.path, "steps": len(trained.losses), "losses": trained.losses})
    else:
        print(trained.path)
