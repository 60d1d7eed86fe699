"""Drafts that are wrong at every place, on a device: what transformers says is said, on every kind of cache."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from generation import Drafter, PromptLookup, StopRule
from generation.engine import DraftRows, OneRow
from generation.engine._sequence_testing import answers_of
from run_iree import available, target_of_device
from run_iree._device_testing import sharing
from tapeline.bundle import Bundle
from tapeline.runners import BundleModel
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.product._bundles import ON_FAST_DEVICES, export_case

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
_TAKES = 4
# Whole caches; rings that wrap around within a draft; states beside a cache; cut-off positions of a latent.
_CASES = ["tinyllama_4x"]
if _DEVICE == "local-task":
    _CASES += ["mistral_window", "deepseek_v3_plain_4x"]
    # Rings beside whole caches, which ragged_test has too; a latent beside experts; states, which mtp_test has too.
    if os.environ.get("TAPELINE_LONG"):
        _CASES += ["gemma3", "deepseek_v3", "qwen3_next_mixed_4x"]


class _Scripted:
    """Drafts of the tokens to come, with one wrong token each."""

    def __init__(self, tokens: Sequence[int], errs_at: int) -> None:
        self.tokens, self.errs_at = tokens, errs_at

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        draft = list(self.tokens[len(history) : len(history) + count])
        if self.errs_at < len(draft):
            draft[self.errs_at] += 1 if draft[self.errs_at] < 50 else -1
        return draft


@pytest.mark.parametrize("name", _CASES)
def test_tokens_are_transformers_whatever_is_proposed(name: str, tmp_path: Path) -> None:
    present, why = available(_DEVICE)
    if not present:
        pytest.skip(why)
    case, expected = CASES[name], read_golden(name).tokens[0].tolist()
    prompt = list(case.prompt[0])
    capacity = len(prompt) + case.steps - 1  # not one position more than needed: the last drafts do not fit
    bundle = Bundle(
        export_case(
            case, tmp_path, sequence=4, max_sequence=capacity, verify_tokens=_TAKES,
            entry_points=("prefill", "decode", "verify"), target=(target_of_device(_DEVICE),),
        )
    )  # fmt: skip
    for device in sharing(_DEVICE) if name == _CASES[0] else (_DEVICE,):
        _assert_tokens(bundle, device, prompt, expected)


def _assert_tokens(bundle: Bundle, device: str, prompt: list[int], expected: list[int]) -> None:
    with bundle.session(device) as session:
        model = BundleModel(bundle, session)
        rows = DraftRows(lambda: OneRow(BundleModel(bundle, session)), states=model.recurrent)
        scripted = [_Scripted([*prompt, *expected], at) for at in range(_TAKES)]
        drafters: list[Drafter] = [*scripted, PromptLookup(1), rows(0, True)]
        accepted = []
        for drafter in drafters:
            answers = answers_of(model, prompt, StopRule(frozenset(), len(expected)), drafter=drafter)
            assert [step.token_id for _, step in answers] == expected
            accepted.append((answers.accepted, answers.drafted))
    assert accepted[0][0] == 0 < accepted[0][1]
    assert accepted[3][0] == accepted[3][1] > 5
    assert accepted[5][0] == accepted[5][1] > 5
    # With states, accepted tokens that are fed again leave less room for a draft.
    assert accepted[1][0] < accepted[2][0] + model.recurrent
