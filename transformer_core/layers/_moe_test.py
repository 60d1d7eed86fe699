import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext
from transformer_core.layers._moe import Experts, SparseFeedForward
from transformer_core.layers._routing import Router, Routing, ScaledRouter, Scoring
from transformer_core.layers._weights_testing import RandomWeights, context_of

X = np.random.default_rng(3).standard_normal((2, 3, 10)).astype(np.float32)
ROUTINGS = {
    "mixtral": Routing(experts=5, chosen=2),
    "one": Routing(experts=3, chosen=1, normalized=False),
    "all": Routing(experts=3, chosen=3),
    "best_group": Routing(experts=12, chosen=3, normalized=False, scale=1.5, groups=6, chosen_groups=2, group_best=1),
    "mixer": Routing(experts=6, chosen=3, scoring=Scoring.MIXER, nearness=0.4),
    "ernie4_5": Routing(experts=6, chosen=3, least_sum=0.7, corrected=True),
    "qwen3": Routing(experts=9, chosen=4, normalized=False),
    "sigmoid": Routing(experts=6, chosen=3, scoring=Scoring.SIGMOID, scale=2.5, corrected=True),
    "groups": Routing(
        experts=12, chosen=3, scoring=Scoring.SIGMOID, scale=1.5, corrected=True, groups=4, chosen_groups=2
    ),
}


def scores_of(logits: np.ndarray, routing: Routing) -> np.ndarray:
    if routing.scoring is Scoring.SIGMOID:
        return 1 / (1 + np.exp(-logits))
    numerator = np.exp(logits - logits.max())
    return numerator / numerator.sum()


def route(x: np.ndarray, weights: RandomWeights, prefix: str, routing: Routing) -> dict[int, float]:
    """The experts of one token and their weights, written down the slow way."""
    logits = weights.read(f"{prefix}weight").astype(np.float64) @ x
    if routing.scoring is Scoring.MIXER:
        return mix(logits, routing)
    scores = scores_of(logits, routing)
    choice = scores + weights.read(f"{prefix}e_score_correction_bias") if routing.corrected else scores
    size = routing.experts // routing.groups
    merit = [sum(sorted(choice[g * size : (g + 1) * size])[-routing.group_best :]) for g in range(routing.groups)]
    groups = sorted(range(routing.groups), key=lambda g: -merit[g])[: routing.chosen_groups]
    allowed = [e for e in range(routing.experts) if e // size in groups]
    chosen = sorted(allowed, key=lambda e: -choice[e])[: routing.chosen]
    total = max(sum(scores[e] for e in chosen), routing.least_sum or 0.0) if routing.normalized else 1.0
    return {e: float(scores[e] / total * routing.scale) for e in chosen}


def mix(logits: np.ndarray, routing: Routing) -> dict[int, float]:
    """Experts one by one, each with its share among those whose logits are near it."""
    made: dict[int, float] = {}
    for _ in range(routing.chosen):
        left = [e for e in range(routing.experts) if e not in made]
        best = max(left, key=lambda e: logits[e])
        near = [e for e in left if (logits[best] - logits[e]) / max(abs(logits[e]), logits[best]) <= routing.nearness]
        made[best] = float(1 / sum(np.exp(logits[e] - logits[best]) for e in near))
    return made


def feed_forward(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    g = gate.astype(np.float64) @ x
    return down.astype(np.float64) @ (g / (1 + np.exp(-g)) * (up.astype(np.float64) @ x))


def expected(x: np.ndarray, weights: RandomWeights, routing: Routing, shared: bool) -> np.ndarray:
    stacked = [weights.read(f"experts.{name}_proj") for name in ("gate", "up", "down")]
    made = sum(w * feed_forward(x, *(s[e] for s in stacked)) for e, w in route(x, weights, "gate.", routing).items())
    if shared:
        made = made + feed_forward(
            x, *(weights.read(f"shared_experts.{name}_proj.weight") for name in ("gate", "up", "down"))
        )
    return np.asarray(made)


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
@pytest.mark.parametrize("shared", [0, 8])
@pytest.mark.parametrize("tokens", [(1, 1), (2, 3), (3, 41)])
def test_a_mixture_is_the_weighted_sum_of_its_experts(routing: Routing, shared: int, tokens: tuple[int, int]):
    layer = SparseFeedForward(10, 7, routing, shared=shared)
    weights = RandomWeights(layer)
    x = np.random.default_rng(4).standard_normal((*tokens, 10)).astype(np.float32)
    actual = layer(EagerExecutionContext(weights), x).numpy()
    wanted = [expected(row, weights, routing, bool(shared)) for row in x.reshape(-1, 10)]
    np.testing.assert_allclose(actual.reshape(-1, 10), wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
def test_a_router_gives_the_best_first(routing: Routing):
    router = Router(10, routing)
    weights = RandomWeights(router)
    x = X.reshape(-1, 10)
    chosen, shares = (tensor.numpy() for tensor in router(EagerExecutionContext(weights), x))
    assert chosen.dtype == np.int32
    for row, experts, parts in zip(x, chosen, shares, strict=True):
        wanted = route(row, weights, "", routing)
        assert experts.tolist() == list(wanted)
        np.testing.assert_allclose(parts, list(wanted.values()), rtol=1e-5)


def test_a_scaled_router_norms_its_inputs_and_scales_what_it_gives():
    routing = ROUTINGS["mixtral"]
    router = ScaledRouter(10, routing, eps=1e-2)
    weights = RandomWeights(router)
    x = X.reshape(-1, 10)
    chosen, shares = (tensor.numpy() for tensor in router(EagerExecutionContext(weights), x))
    normed = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-2) * weights.read("scale") * 10**-0.5
    for row, experts, parts in zip(normed, chosen, shares, strict=True):
        wanted = route(row, weights, "proj.", routing)
        assert experts.tolist() == list(wanted)
        scales = weights.read("per_expert_scale")[experts]
        np.testing.assert_allclose(parts, np.array(list(wanted.values())) * scales, rtol=1e-5)


def test_a_nan_stays_in_its_row():
    layer = SparseFeedForward(10, 7, ROUTINGS["mixtral"])
    ctx = context_of(layer)
    broken = X.copy()
    broken[1, 1] = np.nan
    actual, clean = layer(ctx, broken).numpy(), layer(ctx, X).numpy()
    assert np.isnan(actual[1, 1]).all()
    others = np.ones((2, 3), bool)
    others[1, 1] = False
    np.testing.assert_array_equal(actual[others], clean[others])


def test_all_tokens_may_choose_one_expert():
    experts = Experts(4, 10, 7)
    ctx = context_of(experts)
    x = np.random.default_rng(5).standard_normal((50, 10)).astype(np.float32)
    chosen = np.full((50, 1), 2, np.int32)
    one = experts(ctx, x, chosen, np.ones((50, 1), np.float32)).numpy()
    weights = RandomWeights(experts)
    stacked = [weights.read(f"{name}_proj")[2] for name in ("gate", "up", "down")]
    np.testing.assert_allclose(one, [feed_forward(row, *stacked) for row in x], rtol=2e-5, atol=2e-6)


def test_a_shared_expert_has_a_gate_of_the_token():
    routing = Routing(experts=6, chosen=2)
    gated, alone = SparseFeedForward(10, 7, routing, shared=4, shared_gate=True), SparseFeedForward(10, 7, routing)
    assert gated.shared_expert is not None
    assert gated.shared_expert_gate is not None
    ctx = context_of(gated)
    gate = 1 / (1 + np.exp(-gated.shared_expert_gate(ctx, X).numpy()))
    expected = alone(context_of(gated), X).numpy() + gate * gated.shared_expert(ctx, X).numpy()
    np.testing.assert_allclose(gated(ctx, X).numpy(), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_short_dtypes_are_near_f32_and_the_correction_stays_f32(dtype: str):
    routing = Routing(experts=6, chosen=5, scoring=Scoring.SIGMOID, corrected=True)
    wide, short = SparseFeedForward(10, 7, routing), SparseFeedForward(10, 7, routing, dtype=dtype)
    assert short.gate.e_score_correction_bias is not None
    assert short.gate.e_score_correction_bias.spec.dtype.name == "f32"
    ctx = context_of(wide)
    reference = wide(ctx, X).numpy()
    actual = short(ctx, ctx.ops.cast(X, dtype))
    assert actual.dtype.name == dtype
    error = np.linalg.norm(actual.numpy().astype(np.float32) - reference) / np.linalg.norm(reference)
    assert 1e-5 < error < 3e-2


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"experts": 6, "chosen": 1, "groups": 4}, "routing: 6 experts do not make 4 equal groups of 2 or more"),
        ({"experts": 4, "chosen": 1, "groups": 4}, "4 experts do not make 4 equal groups of 2 or more"),
        ({"experts": 4, "chosen": 1, "groups": 2, "chosen_groups": 3}, "expected 1 to 2 chosen groups; found 3"),
        ({"experts": 4, "chosen": 5}, "expected 1 to 4 experts per token; found 5"),
        ({"experts": 4, "chosen": 3, "groups": 2}, "expected 1 to 2 experts per token; found 3"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(numbers, message):
    with pytest.raises(ConfigError, match=message):
        Routing(**numbers)


def test_weights_may_be_factors_of_inputs():
    routing = Routing(experts=5, chosen=3, scoring=Scoring.SIGMOID, normalized=False)
    layer = SparseFeedForward(10, 7, routing, shared=8, scales_inputs=True)
    weights = RandomWeights(layer)
    stacked = [weights.read(f"experts.{name}_proj") for name in ("gate", "up", "down")]
    shared = [weights.read(f"shared_experts.{name}_proj.weight") for name in ("gate", "up", "down")]
    actual = layer(EagerExecutionContext(weights), X).numpy().reshape(-1, 10)
    for row, made in zip(X.reshape(-1, 10), actual, strict=True):
        parts = [
            feed_forward(w * row, *(s[e] for s in stacked)) for e, w in route(row, weights, "gate.", routing).items()
        ]
        np.testing.assert_allclose(made, sum(parts) + feed_forward(row, *shared), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_groups_of_experts_give_what_experts_give(tokens: int):
    rng, experts = np.random.default_rng(tokens), Experts(8, 10, 7, biased=True)
    ctx = context_of(experts)
    x = rng.standard_normal((tokens, 10)).astype(np.float32)
    drawn = rng.permuted(np.tile(np.arange(8), (tokens, 1)), axis=1)[:, :3]
    weights = rng.random((tokens, 3)).astype(np.float32)
    for chosen in (drawn.astype(np.int32), np.full((tokens, 3), 5, np.int32)):
        experts.groups = 1
        wanted = experts(ctx, x, chosen, weights).numpy()
        for experts.groups in (2, 4, 8):
            made = experts(ctx, x, chosen, weights).numpy()
            np.testing.assert_allclose(made, wanted, rtol=2e-5, atol=2e-6)


def test_a_nan_stays_in_its_row_where_experts_are_in_groups():
    experts = Experts(4, 10, 7)
    experts.groups = 2
    x = np.ones((3, 10), np.float32)
    x[1] = np.nan
    chosen = np.array([[0, 2], [0, 3], [1, 2]], np.int32)
    made = experts(context_of(experts), x, chosen, np.ones((3, 2), np.float32)).numpy()
    assert np.isnan(made).all(1).tolist() == [False, True, False]
