"""Later Gemmas, and files that wrap a Gemma: golden cases."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._gemma_forms import gemma3_wrapped_4_50

GEMMA_TEXT_CASES = (
    GoldenCase(
        name="gemma3_wrapped_4x",
        twist="the decoder inside a checkpoint with a vision tower; text_config with little in it",
        config=gemma3_wrapped_4_50(K=1, H=10, sizes=dict(D=36, F=50, V=83, L=7, N=2)),
        form="4.x",
        seed=92,
        prompt=prompt(9, vocab=83),
    ),
)
