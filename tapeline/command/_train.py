"""Fine-tunes a causal language model on JAX: a LoRA adapter, or all parameters.

train --model DIR --data FILE --output DIR [--lora R] [--steps N] [--mesh dp=2] [--resume]

The data are a text file, or JSON lines with text or messages. The output is a PEFT adapter with --lora, and a
checkpoint without it; export reads both.
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
    "Model to fine-tune: a Hugging Face directory, a .gguf file, org/name[@revision] on the hub, or demo.",
    required=True,
    flag_values=FLAGS,
)
_DATA: Final = flags.DEFINE_string(
    "data",
    None,
    "Training data: a text file, or a .jsonl file with text or messages in each line.",
    required=True,
    flag_values=FLAGS,
)
_OUTPUT: Final = flags.DEFINE_string(
    "output", None, "Output directory of the adapter or the checkpoint.", required=True, flag_values=FLAGS
)
_RESUME: Final = flags.DEFINE_bool(
    "resume",
    False,
    "Continue an interrupted training from its last checkpoint, or start a new one if there is none.",
    flag_values=FLAGS,
)
_LORA_TARGETS: Final = flags.DEFINE_list(
    "lora_targets",
    [],
    "Linear layers that get an adapter, separated by commas, such as q_proj,v_proj. Default: all but the head.",
    flag_values=FLAGS,
)
_LORA: Final = flags.DEFINE_integer(
    "lora", None, "Rank of the LoRA adapter. Default: trains all parameters.", flag_values=FLAGS
)
_LORA_ALPHA: Final = flags.DEFINE_float(
    "lora_alpha",
    None,
    "LoRA scaling: updates are multiplied by lora_alpha / lora. Default: twice the rank.",
    flag_values=FLAGS,
)
_STEPS: Final = flags.DEFINE_integer("steps", _DEFAULTS.steps, "Number of optimizer steps.", flag_values=FLAGS)
_BATCH: Final = flags.DEFINE_integer(
    "batch", _DEFAULTS.batch, "Number of sequences per micro-batch.", flag_values=FLAGS
)
_ACCUMULATE: Final = flags.DEFINE_integer(
    "accumulate", _DEFAULTS.accumulate, "Number of micro-batches per step (gradient accumulation).", flag_values=FLAGS
)
_SEQUENCE: Final = flags.DEFINE_integer(
    "sequence", _DEFAULTS.sequence, "Number of tokens per sequence.", flag_values=FLAGS
)
_LEARNING_RATE: Final = flags.DEFINE_float(
    "learning_rate", None, "Peak learning rate. Default: 2e-4 with --lora, 2e-5 without.", flag_values=FLAGS
)
_WARMUP: Final = flags.DEFINE_integer(
    "warmup",
    None,
    "Number of warm-up steps. Default: a tenth of the steps, at most 100.",
    flag_values=FLAGS,
)
_SCHEDULE: Final = flags.DEFINE_enum(
    "schedule", _DEFAULTS.schedule, list(SCHEDULES), "Learning-rate schedule after the warm-up.", flag_values=FLAGS
)
_WEIGHT_DECAY: Final = flags.DEFINE_float(
    "weight_decay", _DEFAULTS.weight_decay, "Weight decay of matrices (decoupled, as in AdamW).", flag_values=FLAGS
)
_LARGEST_NORM: Final = flags.DEFINE_float(
    "largest_norm",
    _DEFAULTS.largest_norm,
    "Maximum norm of the gradients (clipping); 0 disables clipping.",
    flag_values=FLAGS,
)
_DTYPE: Final = flags.DEFINE_enum(
    "dtype",
    _DEFAULTS.dtype,
    ["f32", "bf16"],
    "Dtype of activations and of weights in products. Trained parameters are kept in f32.",
    flag_values=FLAGS,
)
_MESH: Final = flags.DEFINE_string(
    "mesh", None, "Device mesh, such as dp=2 or fsdp=2,tp=2. Default: one device.", flag_values=FLAGS
)
_SEED: Final = flags.DEFINE_integer(
    "seed", _DEFAULTS.seed, "Random seed of the data order and of the adapter's initial values.", flag_values=FLAGS
)
_SAVE_EVERY: Final = flags.DEFINE_integer(
    "save_every", _DEFAULTS.save_every, "Number of steps between two checkpoints.", flag_values=FLAGS
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
