"""Ids of a Unigram vocabulary by SentencePiece and llama.cpp: data/gguf_unigram.json.

Run outside of Bazel, with sentencepiece, xllamacpp and gguf installed:

    PYTHONPATH=. python tests/goldens/make_unigram_goldens.py
"""

import base64
import dataclasses
import io
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import sentencepiece
from gguf import GGUFWriter
from sentencepiece import sentencepiece_model_pb2

from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.make_llama_cpp_goldens import _asked

_DATA: Final = Path(__file__).parent / "data"
_OUTPUT: Final = _DATA / "gguf_unigram.json"
_CORPUS: Final = json.loads((_DATA / "gguf_tokenizers.json").read_text())["texts"]
# A few characters that are written otherwise: wide letters, a ligature, kinds of spaces.
_RULES: Final = {"\uff41": "a", "ﬁ": "fi", "\t": " ", "\n": " ", "\u00a0": " ", "½": "1/2", "🙂": ":)", "é": "e"}
_TEXTS: Final = [*_CORPUS, "\uff41 ﬁne\u00a0day ½", "</s>x<unk> <user>y", "", " ", "   a  b   "]


def _trained(directory: Path) -> Any:
    rules = directory / "rules.tsv"
    lines = ("\t".join(" ".join(f"{ord(c):04X}" for c in part) for part in rule) for rule in _RULES.items())
    rules.write_text("\n".join(lines) + "\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_CORPUS * 3 + ["the tape is the tape and a token is a piece of the text"]),
        model_writer=model,
        vocab_size=140,
        model_type="unigram",
        normalization_rule_tsv=str(rules),
        character_coverage=0.98,
        user_defined_symbols=["<user>"],
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
    )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto


def _add(writer: GGUFWriter, fields: dict[str, Any], prefix: bool, collapsed: bool) -> None:
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(fields["tokens"])
    writer.add_token_scores(fields["scores"])
    writer.add_token_types(fields["types"])
    writer.add_add_space_prefix(prefix)
    writer.add_remove_extra_whitespaces(collapsed)
    writer.add_precompiled_charsmap(base64.b64decode(fields["charsmap"]))
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_pad_token_id(0)


def main() -> None:
    """Writes the file."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        proto = _trained(directory)
        fields: dict[str, Any] = {
            "tokens": [piece.piece for piece in proto.pieces],
            "scores": [piece.score for piece in proto.pieces],
            "types": [piece.type for piece in proto.pieces],
            "charsmap": base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode(),
        }
        llama = CASES["llama_gqa"]
        case = dataclasses.replace(llama, config={**llama.config, "vocab_size": len(fields["tokens"])})
        cases = []
        for prefix, collapsed in itertools.product((True, False), repeat=2):
            path = directory / f"{prefix}-{collapsed}.gguf"
            write_gguf(path, case, tokenizer=lambda w, p=prefix, c=collapsed: _add(w, fields, p, c))
            cases.append({"prefix": prefix, "collapsed": collapsed, "ids": _asked(path, {"texts": _TEXTS})})
        processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        ids = [processor.encode(text) for text in _TEXTS]
    golden = {
        "made_by": "tests/goldens/make_unigram_goldens.py",
        "sentencepiece": sentencepiece.__version__,
        "texts": _TEXTS,
        "vocabulary": fields,
        "sentencepiece_ids": ids,
        "llama_cpp_cases": cases,
    }
    _OUTPUT.write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
