"""One bundle in every engine: the same tokens, and logits as close as roundings are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from generation import StopRule
from generation.engine._sequence_testing import steps_of
from lang_core import InputError, VerificationError
from run_jax.sessions import PLATFORMS
from tapeline.backends import ENGINES, Place, model_of, open_session
from tapeline.bundle import Bundle
from tapeline.compare import TOLERANCE
from tapeline.runners import BundleModel, open_slots
from tests.product._bundles import Finished, export, invoke, refused
from tests.product._eager_model import EagerModel

_PROMPT = [5, 60, 7, 200, 9, 300, 4]
_STEPS = 12


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export("demo", tmp_path_factory.mktemp("demo") / "bundle", num_layers=2, sequence=4, max_sequence=40)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes: Any = {"num_layers": 2, "sequence": 4, "max_sequence": 40, "quantize": "q8_0"}
    return export("demo", tmp_path_factory.mktemp("packed") / "bundle", **sizes)


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes: Any = {"num_layers": 1, "max_sequence": 32, "slots": 3, "target": ()}
    return export("demo", tmp_path_factory.mktemp("slots") / "bundle", **sizes)


def _greedy(model: Any) -> tuple[list[int], np.ndarray]:
    steps = steps_of(model, _PROMPT, StopRule(frozenset(), _STEPS))
    return [step.token_id for step in steps], np.stack([step.logits for step in steps])


def _in_engine(path: Path, engine: str) -> tuple[list[int], np.ndarray]:
    bundle = Bundle(path)
    with open_session(bundle, Place(engine)) as session:
        model = BundleModel(bundle, session)
        return _greedy(model)


def _eager(path: Path) -> tuple[list[int], np.ndarray]:
    bundle = Bundle(path)
    _, (prefill, decode) = model_of(bundle)
    weights = bundle.weights()
    assert weights is not None
    return _greedy(EagerModel(prefill, decode, weights, bundle.config.model["vocabulary"]))


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_says_what_the_eager_model_says(engine: str, demo: Path) -> None:
    tokens, logits = _in_engine(demo, engine)
    wanted_tokens, wanted = _eager(demo)
    assert tokens == wanted_tokens
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_jax_multiplies_with_packed_weights_as_the_eager_model_does(packed: Path) -> None:
    """IREE's kernels take x in integers of 16 bits, and a last bit of x is a whole step of those now and then."""
    tokens, logits = _in_engine(packed, "jax")
    wanted_tokens, wanted = _eager(packed)
    assert tokens == wanted_tokens
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    other_tokens, other = _in_engine(packed, "iree")
    assert other_tokens == tokens
    assert 1e-6 < np.abs(other - wanted).max() / np.abs(wanted).max() < 1e-3


def test_caches_are_donated_and_stay_where_they_are(demo: Path) -> None:
    bundle = Bundle(demo)
    with open_session(bundle, Place("jax")) as session:
        model = BundleModel(bundle, session)
        held: Any = model.caches
        model.prefill(np.array([_PROMPT[:4]], np.int32), 0, 3)
        before = [held.addresses(index) for index in range(len(model.cache_specs))]
        for position in range(4, 10):
            model.decode(5, position)
            assert [held.addresses(index) for index in range(len(model.cache_specs))] == before


@pytest.mark.parametrize("engine", ENGINES)
def test_memory_of_prompts_works_in_every_engine(engine: str, demo: Path) -> None:
    with tapeline.load(demo, engine=engine) as model:
        first = model.stream(token_ids=_PROMPT, max_new_tokens=4, ignore_eos=True)
        tokens = [token.token_id for token in first]
        again = model.stream(token_ids=[*_PROMPT, *tokens], max_new_tokens=4, ignore_eos=True)
        following = [token.token_id for token in again]
        assert again.reused > 0
        assert len(following) == 4
        assert model.score(token_ids=_PROMPT).log_probabilities.shape == (len(_PROMPT) - 1,)
        targets = {"iree": ["llvm-cpu"], "jax": [f"xla-{platform}" for platform in PLATFORMS]}
        assert model.target in targets[engine]


def test_rows_of_slots_say_what_a_row_alone_says(slots: Path) -> None:
    """XLA's sums depend on the batch, so such a bundle is measured not to be invariant, and always runs whole calls."""
    bundle = Bundle(slots)
    with open_session(bundle, Place("jax")) as session:
        rows = open_slots(bundle, session)
        alone = [rows.prefill_row(_PROMPT, 1, 0).logits()]
        alone += [rows.decode((1,), (token,), (len(_PROMPT) + i,))[0].logits() for i, token in enumerate((3, 4, 5))]
        rows.prefill_row(_PROMPT[::-1], 0, 0)
        rows.copy_row(0, 2)
        together = [rows.prefill_row(_PROMPT, 1, 0).logits()]
        for i, token in enumerate((3, 4, 5)):
            at = len(_PROMPT) + i
            together.append(rows.decode((2, 1, 0), (8, token, 9), (at, at, at))[1].logits())
        np.testing.assert_array_equal(np.stack(together), np.stack(alone))
        np.testing.assert_array_equal(rows.read_row(2, 0, 7)[0], rows.read_row(0, 0, 7)[0])
        rows.write_row(2, 0, rows.read_row(1, 0, 5))
        np.testing.assert_array_equal(rows.read_row(2, 0, 5)[1], rows.read_row(1, 0, 5)[1])


def test_parameters_that_an_entry_point_does_not_read_are_no_arguments(slots: Path) -> None:
    points = {point.name: point for point in Bundle(slots).config.entry_points}
    assert points["copy_row"].parameters == ()
    assert points["decode"].parameters is None


@pytest.fixture
def calling(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return lambda command, *flags: invoke(command, capsys, *flags)


def test_commands_run_a_bundle_without_compiled_modules(calling: Callable[..., Finished], slots: Path) -> None:
    ids = f"--token_ids={','.join(map(str, _PROMPT))}"
    done = calling("generate", f"--bundle={slots}", "--backend=jax", ids, "--max_new_tokens=3", "--ignore_eos")
    with tapeline.load(slots, engine="jax") as model:
        answer = model.generate(token_ids=_PROMPT, max_new_tokens=3, ignore_eos=True)
    assert (done.code, done.err, done.out) == (0, "", f"{answer.text}\n")
    compared = calling("compare", f"--actual={slots}", "--backend=jax", "--entry_point=prefill_row")
    assert (compared.code, "0 differ" in compared.out) == (0, True), compared.out + compared.err
    refused(
        calling("generate", f"--bundle={slots}", ids), "was compiled for no target: export it with --target=llvm-cpu"
    )


def test_what_does_not_go_together_is_refused(calling: Callable[..., Finished], demo: Path, tmp_path: Path) -> None:
    bundle, ids = f"--bundle={demo}", "--token_ids=1,2"
    refused(
        calling("generate", bundle, ids, "--backend=jax", "--device=vulkan"),
        "--device=vulkan: not a device of --backend=jax; available: cpu, cuda, rocm, tpu: "
        "with --backend=iree it is one",
    )
    refused(calling("generate", bundle, ids, "--mesh=tp=2"), "--mesh=tp=2 goes with --backend=jax: iree runs a bundle")


def test_a_bundle_that_lacks_a_file_is_refused(demo: Path, tmp_path: Path) -> None:
    for path in demo.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "module.vhlo").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"module\.vhlo is not the file that kernel_config\.json describes"):
        tapeline.load(tmp_path, engine="jax")
    (tmp_path / "module.vhlo").unlink()
    with pytest.raises(InputError, match=r"has lost module\.vhlo, which kernel_config\.json lists"):
        tapeline.load(tmp_path, engine="jax")
    (tmp_path / "module.vhlo").write_bytes((demo / "module.vhlo").read_bytes())
    (tmp_path / "weights.irpa").unlink()
    with pytest.raises(InputError, match=r"has lost weights\.irpa"):
        tapeline.load(tmp_path, engine="jax")


def test_an_export_is_verified_by_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: Any = {"num_layers": 1, "sequence": 4, "max_sequence": 16, "target": (), "verify": "jax", "mesh": "tp=2"}
    rows = json.loads((export("demo", tmp_path / "bundle", **sizes) / "report.json").read_text())["verification"]
    assert {row["entry_point"] for row in rows if row["device"] == "jax"} == {"prefill", "decode"}
    (skipped,) = [row["skipped"] for row in rows if row["device"] == "jax mesh=tp=2"]
    assert "2 devices" in skipped
    monkeypatch.setitem(TOLERANCE, "f32", -1.0)
    with pytest.raises(
        VerificationError, match=r"device jax, entry point 'prefill', result .* disagrees with the eager"
    ):
        export("demo", tmp_path / "other", **sizes)
    assert not (tmp_path / "other").exists()


def test_a_prompt_cache_lookup_and_drafts_change_no_token_on_jax(tmp_path: Path) -> None:
    sizes: Any = {"num_layers": 1, "sequence": 4, "max_sequence": 40, "target": ()}
    points: Any = {"entry_points": ("prefill", "decode", "verify"), "verify_tokens": 4}
    path = export("demo", tmp_path / "bundle", **sizes, **points)
    options: Any = {"token_ids": _PROMPT * 2, "max_new_tokens": 6, "ignore_eos": True}
    with tapeline.load(path, engine="jax") as model:
        expected = model.generate(**options).token_ids
    for _ in range(2):
        with tapeline.load(path, engine="jax", prompt_cache=tmp_path / "cache") as model:
            assert model.generate(**options).token_ids == expected
    ways: list[dict[str, Any]] = [{"speculate": "prompt_lookup:1"}, {"draft": path}]
    for keywords in ways:
        with tapeline.load(path, engine="jax", **keywords) as model:
            assert model.generate(**options).token_ids == expected
