"""Compute the golden files with transformers: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.make_goldens [--only NAME ...]
    python -m tests.goldens.make_goldens --only NAME --seeds 200    # prints the first seed that suits, writes nothing

Each case is checked while it is made: the config reads and writes back unchanged (form 5.x), transformers uses every
key of the checkpoint and misses none, generation with a cache agrees with a step-by-step decode and (unless RoPE
depends on the length) with one forward over the whole sequence, no greedy choice is close, and each change in
``must_matter`` moves the logits.
"""

import argparse
import json
import platform
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from tests.goldens._case_types import ATTENTION, GoldenCase
from tests.goldens._wrapper_shapes import other_shapes
from tests.goldens._written_shapes import COMPUTED
from tests.goldens.cases import CASES, ROPE_CASES
from tests.goldens.draw_greedy import OWN_POSITIONS, greedy, own_cache
from tests.goldens.golden_files import DATA
from tests.goldens.make_rope_goldens import rope_arrays
from tests.goldens.weights import checksum, random_weights, write_checkpoint

_CLEAR_MARGIN = 1e-3
_VISIBLE = 1e-2
_DISTINCT_TOKENS = 5
_LENGTH_DEPENDENT = ("dynamic", "longrope")


class _UnsuitableSeedError(RuntimeError):
    """Weights of this seed make a weak case; another seed may suit."""


def main() -> int:
    """Make the files asked for; a case that fails a check raises, and leaves its file as it was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), default=sorted(CASES), metavar="NAME")
    parser.add_argument("--seeds", type=int, metavar="N", help="Number of seeds to try, from the case's own on.")
    arguments = parser.parse_args()
    names = arguments.only
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if arguments.seeds is not None:
        return max(_find_seed(CASES[name], arguments.seeds) for name in names)
    DATA.mkdir(exist_ok=True)
    for name in names:
        arrays = _case_arrays(CASES[name])
        np.savez_compressed(DATA / f"{name}.npz", **arrays)
        print(f"{name}: {(DATA / f'{name}.npz').stat().st_size} bytes; tokens {arrays['tokens'].tolist()}")
    np.savez_compressed(DATA / "rope.npz", **rope_arrays(ROPE_CASES.values()))
    _write_manifest()
    return 0


def _find_seed(case: GoldenCase, count: int) -> int:
    """Prints the first of ``count`` seeds that passes each check; returns the exit status, 1 if there is none."""
    reasons: dict[str, int] = {}
    for seed in range(case.seed, case.seed + count):
        try:
            _case_arrays(replace(case, seed=seed))
        except _UnsuitableSeedError as error:
            reason = re.sub(r"-?[0-9.]+(e-?[0-9]+)?", "N", str(error))
            reasons[reason] = reasons.get(reason, 0) + 1
        else:
            print(f"{case.name}: seed={seed}")
            return 0
    print(f"{case.name}: none of {count} seeds from {case.seed} on suits: {reasons}")
    return 1


def _case_arrays(case: GoldenCase) -> dict[str, np.ndarray]:
    """The arrays of ``golden_files.Golden``."""
    _check_config(case)
    prompt = np.array(case.prompt, np.int64)
    prompt_logits, hidden = _prompt_forward(_load(case), prompt)
    tokens, logits = _generate(_load(case), prompt, case.steps)
    _check_choices(case, tokens, logits)
    _check_agreement(case, prompt, tokens, logits, prompt_logits)
    for change in case.must_matter:
        _check_matters(case, change, prompt, tokens, logits)
    arrays = {"prompt": prompt, "tokens": tokens, "logits": logits, "prompt_logits": prompt_logits}
    return {**arrays, "hidden": hidden} if case.hidden else arrays


def _load(case: GoldenCase, change: Mapping[str, Any] | None = None) -> Any:
    """A fresh model: RoPE tables that grew in one run must not leak into the next."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_checkpoint(directory, case)
        if change is not None:
            (directory / "config.json").write_text(json.dumps({**case.config, **change}))
        model, info = AutoModelForCausalLM.from_pretrained(
            directory,
            config=_config(directory),
            dtype=torch.float32,
            attn_implementation=ATTENTION.get(case.config["model_type"], "eager"),
            experts_implementation="eager",  # the others want sizes in multiples of 16 bytes
            output_loading_info=True,
        )
    others = other_shapes(case.config)
    known = {kind: [key for key in keys if not str(key).endswith(COMPUTED)] for kind, keys in info.items()}
    problems = {kind: keys for kind, keys in known.items() if set(keys) - set(others)}
    if problems and change is None:
        raise RuntimeError(f"{case.name}: transformers does not take the checkpoint as it is: {problems}")
    return model.eval()


def _config(directory: Path) -> Any:
    """The configuration; of Gemma 3n the decoder's alone, for its vision tower needs a further library."""
    config = AutoConfig.from_pretrained(directory)
    return config.get_text_config() if config.model_type == "gemma3n" else config


def _prompt_forward(model: Any, prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits ``[B, T, V]`` and the residual stream after each block ``[L, B, T, D]``."""
    hidden: list[np.ndarray] = []
    base = model.base_model if model.base_model is not model else model.model  # Llama 4 names it otherwise
    base = getattr(base, "language_model", base)
    base = getattr(base, "decoder", base)  # OPT
    base = getattr(base, "encoder", base)  # BERT
    layers = next(getattr(base, name) for name in ("h", "blocks", "layers", "layer") if hasattr(base, name))
    for layer in layers:
        layer.register_forward_hook(lambda module, inputs, output: hidden.append(_tensor(output).numpy().copy()))
    options = {"use_cache": False} if _caches(model) else {}
    logits = model(torch.from_numpy(prompt), **options).logits.numpy()
    return logits, np.stack(hidden)


def _tensor(output: Any) -> torch.Tensor:
    """Returns the residual stream of a layer's result, which in some families has other things after it."""
    return output[0] if isinstance(output, tuple | list) else output


def _generate(model: Any, prompt: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Greedy tokens ``[B, steps]`` and their logits ``[B, steps, V]`` from transformers' own generation."""
    if model.config.model_type in OWN_POSITIONS:
        try:
            return greedy(model, prompt, steps)
        except ValueError as error:
            raise _UnsuitableSeedError(str(error)) from error
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = None
    ids = torch.from_numpy(prompt)
    own = {"past_key_values": own_cache(model)} if model.config.model_type == "minimax" else {}
    result = model.generate(
        ids,
        **own,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=steps,
        use_cache=_caches(model),
        output_logits=True,
        return_dict_in_generate=True,
    )
    if _caches(model) and not isinstance(result.past_key_values, DynamicCache):
        raise RuntimeError(f"generation used a {type(result.past_key_values).__name__}, not a DynamicCache")
    return result.sequences[:, prompt.shape[1] :].numpy(), torch.stack(result.logits, dim=1).numpy()


def _forced_logits(model: Any, prompt: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Logits ``[B, steps, V]`` of a cached decode that is fed ``tokens`` whatever it would choose."""
    if not _caches(model):
        whole = np.concatenate([prompt, tokens[:, :-1]], 1)
        return model(torch.from_numpy(whole)).logits[:, prompt.shape[1] - 1 :].numpy()
    cache = {_cache_name(model): own_cache(model)}
    steps = []
    ids = torch.from_numpy(prompt)
    for i in range(tokens.shape[1]):
        steps.append(model(ids, **cache, **_places(model, ids, prompt.shape[1] + i - 1), use_cache=True).logits[:, -1])
        ids = torch.from_numpy(tokens[:, i : i + 1])
    return torch.stack(steps, dim=1).numpy()


def _caches(model: Any) -> bool:
    """Returns whether a model has caches; transformers' GPT-1 has none."""
    return model.config.model_type != "openai-gpt"


def _places(model: Any, ids: torch.Tensor, last: int) -> dict[str, torch.Tensor]:
    """Returns the positions of tokens, the last of which is given, for a model that does not count cached ones."""
    if model.config.model_type not in ("bamba", "minimax"):
        return {}
    return {"position_ids": torch.arange(last - ids.shape[1] + 1, last + 1)[None]}


def _cache_name(model: Any) -> str:
    return "cache_params" if model.config.model_type in ("mamba", "falcon_mamba", "mamba2") else "past_key_values"


def _check_config(case: GoldenCase) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_checkpoint(Path(name), replace(case, stored="f32"))
        config = AutoConfig.from_pretrained(name)
        config.save_pretrained(name)
        written = json.loads((Path(name) / "config.json").read_text())
    if case.form == "5.x" and written != case.config:
        both = {key: (case.config.get(key, "absent"), written.get(key, "absent")) for key in written | case.config}
        different = {key: pair for key, pair in both.items() if pair[0] != pair[1]}
        raise RuntimeError(f"{case.name}: transformers writes the config differently (ours, its): {different}")


def _check_choices(case: GoldenCase, tokens: np.ndarray, logits: np.ndarray) -> None:
    """No choice is close, rows do not fall into one token's loop, logits are of a usual size."""
    top = np.sort(logits, axis=-1)
    margin = float((top[..., -1] - top[..., -2]).min())
    if margin < _CLEAR_MARGIN:
        raise _UnsuitableSeedError(
            f"{case.name}: a greedy choice has a margin of {margin:.2g}; take another seed (--seeds finds one)"
        )
    fewest = min(len(set(row)) for row in tokens.tolist())
    if fewest < _DISTINCT_TOKENS:
        raise _UnsuitableSeedError(
            f"{case.name}: only {fewest} distinct tokens in a row; take another seed (--seeds finds one)"
        )
    if not 0.7 < logits.std() < 6.0:
        raise _UnsuitableSeedError(f"{case.name}: logits have a standard deviation of {logits.std():.3g}")


def _check_agreement(
    case: GoldenCase, prompt: np.ndarray, tokens: np.ndarray, logits: np.ndarray, prompt_logits: np.ndarray
) -> None:
    forced = _forced_logits(_load(case), prompt, tokens)
    np.testing.assert_allclose(forced, logits, rtol=1e-5, atol=1e-5, err_msg=case.name)
    np.testing.assert_allclose(prompt_logits[:, -1], logits[:, 0], rtol=1e-5, atol=1e-5, err_msg=case.name)
    if any(word in json.dumps(case.config) for word in _LENGTH_DEPENDENT):
        return
    whole, _ = _prompt_forward(_load(case), np.concatenate([prompt, tokens[:, :-1]], axis=1))
    np.testing.assert_allclose(whole[:, prompt.shape[1] - 1 :], logits, rtol=1e-4, atol=1e-4, err_msg=case.name)


def _check_matters(
    case: GoldenCase, change: Mapping[str, Any], prompt: np.ndarray, tokens: np.ndarray, logits: np.ndarray
) -> None:
    moved = float(np.abs(_forced_logits(_load(case, change), prompt, tokens) - logits).max())
    print(f"    {case.name}: {change} moves the logits by {moved:.3g}")
    if moved < _VISIBLE:
        raise _UnsuitableSeedError(
            f"{case.name}: {change} moves the logits by {moved:.2g} only; the case does not see it"
        )


def _write_manifest() -> None:
    manifest = {
        "versions": {
            "numpy": np.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "cases": {
            name: {"case": case.digest(), "weights": checksum(random_weights(case.config, case.seed))}
            for name, case in sorted(CASES.items())
        },
        "rope_cases": {name: case.digest() for name, case in sorted(ROPE_CASES.items())},
    }
    (DATA / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
