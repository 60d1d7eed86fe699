"""Lists the families of models that Tapeline reads.

families                    all, with the commands that use them
families qwen               those whose name has these letters
families --format json      the same as JSON
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from absl import flags

from lang_core import InputError, near_names
from tapeline.cli import show, table
from tapeline.command._format_flags import FormatFlag, put_json
from transformer_core.family import AnyFamily, Family, family_named, kind_of, refusals
from transformer_core.models import architectures
from transformer_core.models.gguf import ARCHITECTURES

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("name",),)

_NAME: Final = flags.DEFINE_string(
    "name", "", "Letters of an architecture, a model type or a GGUF architecture, in either case.", flag_values=FLAGS
)
_FORMAT: Final = FormatFlag(FLAGS)

# Commands by the end of an architecture's name, as transformers names its classes; the first one decides.
_BY_END: Final[Mapping[str, tuple[str, ...]]] = {
    "ForCTC": ("transcribe",),
    "ForMaskedLM": ("fill", "embed --sparse"),
    "NeoBERTLMHead": ("fill", "embed --sparse"),
    "ForNextSentencePrediction": ("classify",),
    "ForSequenceClassification": ("classify", "rerank"),
    "ForTokenClassification": ("tag",),
    "ForQuestionAnswering": ("answer",),
    "ForImageClassification": ("classify --image",),
    "ForImageClassificationWithTeacher": ("classify --image",),
    "WhisperForConditionalGeneration": ("transcribe",),
    "ForConditionalGeneration": ("generate",),
    "MTModel": ("generate",),
    "ViTMAEModel": ("run",),  # states of patches alone
    "CLIPModel": ("embed", "embed --image", "classify --image"),
    "SiglipModel": ("embed", "embed --image", "classify --image"),
}
_OF_A_MODEL: Final[Mapping[str, tuple[str, ...]]] = {"encoder": ("embed",), "vision": ("embed --image",)}
"""Commands by the kind of a model without a head."""
_OF_PAGES: Final = "LayoutLMv3"  # beginning of architectures that take boxes beside a text, which ``run`` alone gives
_UNPROCESSED: Final = "ConvNext"  # beginning of those whose image processor is not read
_ARRAYS: Final = ("run",)  # of models that no other command takes


@dataclass(frozen=True, slots=True)
class FamilyFacts:
    """Facts of a family.

    Attributes:
        architecture: its name in ``architectures`` of config.json.
        model_type: its ``model_type``; empty of a family that is refused.
        supported: False for a family that is refused by name.
        commands: commands for its models, besides ``export`` and ``run``, which take any.
        about: first line of the documentation of its file; the reason if it is refused.
    """

    architecture: str
    model_type: str
    supported: bool
    commands: tuple[str, ...]
    about: str


def main() -> None:
    """Prints the families."""
    letters = _NAME.value.lower()
    known = [*map(_facts, map(family_named, architectures())), *_refused()]
    names = [name for one in known for name in (one.architecture, one.model_type)]
    shown = [one for one in known if letters in one.architecture.lower() or letters in one.model_type.lower()]
    files = [name for name in ARCHITECTURES if letters in name]
    if not shown and not files:
        near = near_names(_NAME.value, [*filter(None, names), *ARCHITECTURES])
        raise InputError(
            f"name: no family has {_NAME.value!r} in its name{near}; docs/extending.md says how to add one"
        )
    if _FORMAT.is_json:
        put_json({"families": shown, "gguf": files})
        return
    rows = [(one.architecture, ", ".join(one.commands) if one.supported else "refused", one.about) for one in shown]
    lines = table([("architecture", "commands", "family"), *rows], indent="") if rows else []
    if files:
        lines += [*([""] if lines else []), f"GGUF files, by general.architecture: {', '.join(files)}"]
    show("\n".join(lines) + "\n")


def _facts(family: AnyFamily) -> FamilyFacts:
    about = (sys.modules[family.read.__module__].__doc__ or "").split("\n")[0].rstrip(".")
    return FamilyFacts(family.architecture, family.model_type, True, _commands(family), about)


def _refused() -> Iterator[FamilyFacts]:
    for architecture, reason in refusals().items():
        yield FamilyFacts(architecture, "", False, (), reason)


def _commands(family: AnyFamily) -> tuple[str, ...]:
    if isinstance(family, Family):
        pictures = () if family.make is None else ("generate --image",)
        return ("generate", "chat", "serve", *pictures)
    if family.architecture.startswith((_OF_PAGES, _UNPROCESSED)):
        return _ARRAYS
    if kind_of(family.architecture) == "audio" and family.architecture.endswith("ForSequenceClassification"):
        return _ARRAYS  # of sound, not of texts
    ends = (commands for end, commands in _BY_END.items() if family.architecture.endswith(end))
    headless = family.architecture.endswith("Model")
    of_a_model = _OF_A_MODEL.get(kind_of(family.architecture) or "", _ARRAYS) if headless else _ARRAYS
    return next(ends, ()) or of_a_model
