"""Writes docs/models.md, the supported families, from registries and goldens: ``bazel run //tools/docs:models_doc``."""

import functools
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from gguf import MODEL_ARCH_NAMES

from tests.goldens.cases import CASES
from tests.goldens.device_cases import BY_DEFAULT, EVERYWHERE, LONG, LONG_EVERYWHERE, ON_JAX
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.gguf_encoders import ARCHITECTURES as GGUF_ENCODERS
from tests.goldens.encoders.gguf_t5 import NAMES as GGUF_T5
from tests.goldens.gguf_cases import GGUF_CASES, HYBRID_CASES
from tests.goldens.gguf_files import ARCHITECTURES as GGUF_NAMES
from tests.goldens.gguf_further import OTHER_NAMES
from tests.goldens.mtp_cases import MTP_CASES
from tests.goldens.own_decoder_forms import AUTHORS, GGUF_ALONE, GGUF_FILES, authors_config
from tests.goldens.published_forms import FORMS as PUBLISHED
from tests.goldens.samples import config_of
from tests.goldens.vision_language.cases import CASES as SEEING_CASES
from transformer_core.family import family_named, text_of
from transformer_core.models import DecoderConfig, Family, architectures
from transformer_core.models.gguf import ARCHITECTURES as GGUF_READ

# Files of architectures that are no model type of transformers, by the architecture that reads them.
_OWN_FILES: Final = {
    "BertModel": ("jina-bert-v2",),
    "EuroBertModel": ("llama-embed",),
    "NomicBertModel": ("nomic-bert-moe",),
}
_FAMILIES: Final = {name: family_named(name) for name in architectures()}
_PICTURES: Final = Counter(case.config["architectures"][0] for case in SEEING_CASES.values())
# Model types of transformers that are another one's configuration and class.
_SAME_CLASS: Final = {"gpt-sw3": "gpt2"}
_COLUMNS: Final = ("architecture", "family", "layers", "verified", "devices", "engines", "speculation", "GGUF")
_DECODERS: Final = Path(__file__).parent / "data" / "transformers_decoders.txt"

_HEADER: Final = """\
# Models

This page is generated, and a test keeps it up to date: run `bazel run //tools/docs:models_doc`. Formats, devices and
options are in [supported.md](supported.md).

- **architecture**: the name in `architectures` of config.json; others are refused, with a list of these.
- **layers**: the kinds that the family's tested models have. *state* is a state-space, convolution or delta-rule layer.
- **verified**: tiny random models, each with twists that its configuration allows, whose logits and greedy tokens are
  transformers' to 2e-4 (eager, in pieces, recorded, on devices). How: [tests/goldens](../tests/goldens/README.md).
  Families of remote code are read by name, and no code is run: a model that transformers has under another name, which
  the column *devices* gives, is stored under theirs and says the same (`tests/parity/published_forms_test.py`).
  Models that transformers has not are held to llama.cpp's logits (`tests/parity/own_decoders_test.py`).
- **devices**: where a bundle of the family is held to transformers' tokens: *all* are CPU, vmvx, Vulkan and CUDA
  (`tests/product/goldens_test.py`). Ops are held to NumPy on every device ([status.md](status.md)).
- **engines**: IREE (the same test), and JAX, which is XLA (`tests/engines/families_test.py`).
- **speculation**: *drafts* of lookup or of another model leave the tokens as they are, where RoPE does not depend on
  the length (`tests/parity/recurrent_speculation_test.py`); *mtp* is the family's own head
  ([speculation.md](speculation.md)).
- **GGUF**: `general.architecture` of files that are read, in brackets where no test file of ours has it
  ([gguf.md](gguf.md)).

Every decoder runs with the entry points of [bundle.md](bundle.md), by streaming and buffered lowering, with packed
weights where rows are long enough, in batches, and with slots for [serving](serving.md).

"""
_REFUSED: Final = (
    (
        "`neo-bert`",
        "its authors cut the fused rows of queries, keys and values head by head, llama.cpp in three blocks, and its "
        "converter leaves them as they are: it computes another model (embeddings off by 0.65), and no peer says which "
        "one a file means",
    ),
    ("`jina-bert-v2` of models for code", "norms of queries and keys, and one more per layer, are not built"),
    ("`bert` with a classifier and no `cls.weight`", "converters leave out BERT's pooler: the scores would be others"),
    ("`t5` with biases in each layer", "UMT5: take the safetensors; no file of GGUF has been compared"),
    (
        "`baichuan`",
        "llama.cpp takes RoPE or ALiBi by the number of layers, and whether the head's rows are normed no file says: "
        "take the safetensors of the 7B",
    ),
    (
        "`dream`, `llada`, `llada-moe`, `rnd1`",
        "their models fill masked tokens in several passes, with attention to both sides: they do not decode one token "
        "after the other",
    ),
    ("`plm`, `cogvlm`", "llama.cpp 2026.10 stops on a tiny `plm`, and no layout of RoPE agreed with its `cogvlm`"),
    ("`gptj`", "llama.cpp has the name alone: no file can be compared"),
    ("`grok` with YaRN (Grok 2)", "scalings and temperatures of its own are not built"),
    ("`step35` with bounds of gates", "`swiglu_clamp_exp` and `swiglu_clamp_shexp` above 0 are not built"),
    ("`deci` with layers of several sizes", "layers without attention, and of other sizes, are not built"),
    ("`clip`", "towers of pictures beside a decoder: take the safetensors, which have both"),
)


def render() -> str:
    """Returns the page."""
    decoders = [name for name, family in _FAMILIES.items() if isinstance(family, Family)]
    others = [name for name in _FAMILIES if name not in decoders]
    parts = [
        "## Decoders\n",
        *_table(_COLUMNS, map(_decoder_row, decoders)),
        "\n## Encoders, and models of sound and pictures\n",
        *_table(
            ("architectures", "family", "verified", "devices", "engines", "GGUF"), map(_other_row, _by_file(others))
        ),
        "\n## Others' lists\n",
        *_missing(),
    ]
    return _HEADER + "\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def _decoder_row(architecture: str) -> tuple[str, ...]:
    gguf = _gguf(architecture)
    if _is_wrapped(architecture):
        return (
            f"`{architecture}`",
            "its decoder; other models in it are left out",
            "",
            "as its decoder",
            *("",) * 3,
            gguf,
        )
    if architecture in _PICTURES:
        walked = (str(_PICTURES[architecture]), "CPU", "IREE", "")  # tests/product/vision_language_test.py
        return (f"`{architecture}`", _about(architecture), "attention", *walked, gguf)
    if architecture in PUBLISHED:
        case = CASES[PUBLISHED[architecture][0]]
        other = f"`{case.config['architectures'][0]}`"  # tests/parity/published_forms_test.py
        walked = ("1", f"as {other}", "", "")
        return (f"`{architecture}`", _about(architecture), _kinds([config_of(case)]), *walked, gguf)
    if architecture in (*AUTHORS, *GGUF_ALONE):
        config = DecoderConfig.from_hf(authors_config(architecture))
        form = "llama.cpp" if architecture in AUTHORS else "llama.cpp; GGUF files alone"
        return (f"`{architecture}`", _about(architecture), _kinds([config]), "1", form, "", "", gguf)
    configs = _configs().get(architecture, [])
    walked = _devices(architecture), _engines(architecture), _drafts(architecture)
    return (f"`{architecture}`", _about(architecture), _kinds(configs), str(len(configs)), *walked, gguf)


def _is_among(architecture: str, names: Iterable[str]) -> bool:
    """Returns whether one of these golden cases is of the architecture."""
    return any(CASES[name].config["architectures"][0] == architecture for name in names)


def _devices(architecture: str) -> str:
    everywhere = (plan.name for plan in (*EVERYWHERE, *LONG_EVERYWHERE))
    return "all" if _is_among(architecture, everywhere) else "CPU"


def _engines(architecture: str) -> str:
    plans = {"IREE": (*EVERYWHERE, *BY_DEFAULT, *LONG), "JAX": ON_JAX}
    walked = {engine: _is_among(architecture, (plan.name for plan in cases)) for engine, cases in plans.items()}
    return ", ".join(engine for engine, has in walked.items() if has)


def _drafts(architecture: str) -> str:
    steady = (name for name, case in CASES.items() if not config_of(case).rope.scaling.depends_on_length)
    kinds = {"drafts": _is_among(architecture, steady), "mtp": _is_among(architecture, MTP_CASES)}
    return ", ".join(kind for kind, has in kinds.items() if has)


def _is_wrapped(architecture: str) -> bool:
    return _FAMILIES[architecture].read.__module__ == text_of.__module__


def _other_row(names: Sequence[str]) -> tuple[str, ...]:
    count = sum(case.architecture in names for case in ENCODER_CASES.values())
    # tests/product: encoders_test, t5_test, whisper_test
    kinds = dict.fromkeys(_FAMILIES[name].model_type for name in names)
    known = {**{kind: (file,) for kind, file in GGUF_ENCODERS.items()}, "t5": GGUF_T5}
    own = (file for name in names for file in _OWN_FILES.get(name, ()))
    files = dict.fromkeys([*(file for kind in kinds for file in known.get(kind, ())), *own])
    gguf = ", ".join(f"`{file}`" for file in files)
    return (", ".join(f"`{name}`" for name in names), _about(names[0]), str(count), "CPU", "IREE", gguf)


def _by_file(names: Sequence[str]) -> Iterator[list[str]]:
    """Returns architectures, those of one file together."""
    files = dict.fromkeys(_FAMILIES[name].read.__module__ for name in names)
    return ([name for name in names if _FAMILIES[name].read.__module__ == file] for file in files)


@functools.cache
def _configs() -> dict[str, list[DecoderConfig]]:
    """Returns the configurations of the golden cases by architecture."""
    configs: dict[str, list[DecoderConfig]] = {}
    for case in CASES.values():
        config = DecoderConfig.from_hf(case.config)
        configs.setdefault(config.architecture, []).append(config)
    return configs


def _about(architecture: str) -> str:
    """Returns the first line of the documentation of the family's file."""
    line = (sys.modules[_FAMILIES[architecture].read.__module__].__doc__ or "").split("\n")[0]
    return line.rstrip(".").replace("|", "\\|")


def _kinds(configs: Sequence[DecoderConfig]) -> str:
    kinds = {
        "attention": any(config.mixer is None or not all(config.mixer.layers) for config in configs),
        "windows": any(width for config in configs for width in config.windows),
        "latent": any(config.latent for config in configs),
        "state": any(config.mixer for config in configs),
        "experts": any(config.experts for config in configs),
    }
    return ", ".join(kind for kind, has in kinds.items() if has)


def _gguf(architecture: str) -> str:
    model_type = _FAMILIES[architecture].model_type
    name = GGUF_NAMES.get(model_type)
    if architecture in GGUF_FILES:  # tests/parity/own_decoders_test.py
        files = dict.fromkeys([*([name] if name else []), *GGUF_FILES[architecture]])
        return ", ".join(f"`{file}`" for file in files)
    if model_type in OTHER_NAMES:  # tests/parity/llama_cpp_test.py
        return f"`{model_type}`"
    if name is None:
        return ""
    tested = any(case.config["model_type"] == model_type for case in (*GGUF_CASES.values(), *HYBRID_CASES.values()))
    return f"`{name}`" if tested else f"(`{name}`)"


def _missing() -> Iterator[str]:
    """Yields lists of names that transformers or the gguf package have, and this project has not."""
    lines = _DECODERS.read_text(encoding="utf-8").splitlines()
    ours = {family.model_type for family in _FAMILIES.values()}
    theirs = [line for line in lines if not line.startswith("#")]
    absent = [name for name in theirs if _SAME_CLASS.get(name, name) not in ours]
    yield f"M{lines[0][3:]}: {len(theirs)}; here {len(theirs) - len(absent)}. Not here:\n"
    yield ", ".join(f"`{name}`" for name in absent) + ".\n"
    known = sorted(MODEL_ARCH_NAMES.values())
    unread = [name for name in known if name not in GGUF_READ]
    yield f"Architectures of the gguf package: {len(known)}; read here {len(known) - len(unread)}. Not read:\n"
    yield ", ".join(f"`{name}`" for name in unread) + ".\n"
    yield "What keeps some of them, and some files of architectures that are read, from being read:\n"
    yield from _table(("files", "why they are refused"), iter(_REFUSED))


def main() -> None:
    """Writes the page into the source tree, where ``bazel run`` says that it is."""
    page = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")) / "docs" / "models.md"
    page.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
