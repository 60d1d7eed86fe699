"""References: other implementations of a model, run in a separate process, and their tasks.

transformers reads directories, llama.cpp GGUF files. Neither is a dependency of Tapeline: an interpreter that has them
is named, and the two programs ``run_*_reference.py`` of this folder run in it.
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.reference._process import (
        PYTHON_VARIABLE,
        ReferenceAnswer,
        ReferenceProcess,
        ReferenceRequest,
        TokenSequence,
        kind_of,
        reference_python,
        run_reference,
    )
    from tapeline.reference._texts import CONVERSATIONS, TEXTS

export_lazily(__name__)
