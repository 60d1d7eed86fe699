"""Prompt caches that are refused before a session is opened."""

from pathlib import Path

import pytest

from compile_hlo.directions import Signature
from lang_core import InputError
from tapeline.bundle import MARK, Bundle, KernelConfig
from tapeline.running._prompt_cache import PromptCacheFile


def test_a_bundle_with_an_encoder_has_no_prompt_cache(tmp_path: Path) -> None:
    KernelConfig([Signature(name, (), ()) for name in ("prefill", "decode", "encode")]).write(tmp_path / MARK)
    with pytest.raises(InputError, match="depends on what its encoder was given"):
        PromptCacheFile(tmp_path / "p", Bundle(tmp_path), "module.vmvx.vmfb")
