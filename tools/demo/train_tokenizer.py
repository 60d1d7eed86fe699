"""Trains the demo model's tokenizer on corpus.txt.

`tokenizer.json` beside this file is what comes out. To make it again after a change of the corpus:

    ./bazelw run //tools/demo:train_tokenizer
"""

import os
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tapeline.demo import BOS, BOS_ID, EOS, VOCABULARY_SIZE

CORPUS = Path(__file__).with_name("corpus.txt")


def train(corpus: Path) -> Tokenizer:
    """Returns a byte-level BPE tokenizer of `VOCABULARY_SIZE` entries that puts the begin token before a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[BOS, EOS],  # first, so that their ids are 0 and 1
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # every byte: no text is unknown
        show_progress=False,
    )
    tokenizer.train([str(corpus)], trainer)
    template = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS}:1 $B:1", special_tokens=[(BOS, BOS_ID)]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    return tokenizer


def main() -> None:
    """Writes tokenizer.json to the source tree, which Bazel names in an environment variable."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", Path(__file__).parents[2]))
    train(CORPUS).save(str(root / "tapeline" / "demo" / "tokenizer.json"))


if __name__ == "__main__":
    main()
