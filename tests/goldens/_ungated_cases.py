"""The cases of dense families with layer norms, or without a gate in the feed-forward."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._config_forms import DEFAULT_ROPE
from tests.goldens._ungated_forms import arcee5, helium5, nemotron5, phi5, phi_4_37, starcoder2_5

_HALF_LINEAR = {"factor": 3.0, "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "linear"}

_PHI_CASES = (
    GoldenCase(
        name="phi_normed",
        twist="layer norms with biases over the heads of queries and keys",
        config=phi5(K=2, sizes=dict(D=48, F=62, V=80, L=2, N=4), qk_layernorm=True),
        form="5.x",
        seed=912,
        prompt=prompt(8, vocab=80),
        must_matter=({"layer_norm_eps": 1e-1},),
    ),
    GoldenCase(
        name="phi",
        twist="one layer norm for both parts, half of a head rotated, biases, also of the head; hidden states",
        config=phi5(K=2, sizes=dict(D=48, F=66, V=84, L=3, N=4)),
        form="5.x",
        seed=370,
        prompt=prompt(9, vocab=84),
        hidden=True,
        must_matter=(
            {"rope_parameters": {**DEFAULT_ROPE, "partial_rotary_factor": 1.0}},
            {"layer_norm_eps": 1e-1},
            {"hidden_act": "relu"},
        ),
    ),
    GoldenCase(
        name="phi_4x",
        twist="0.4 of a head rotated, multi-head; 4.x form, f16 file",
        config=phi_4_37(sizes=dict(D=60, F=72, V=82, L=2, N=3)),
        form="4.x",
        seed=374,
        prompt=prompt(7, vocab=82),
        stored="f16",
        must_matter=({"partial_rotary_factor": 0.5},),
    ),
)

_SQUARED_CASES = (
    GoldenCase(
        name="nemotron",
        twist="zero-centred layer norms with biases, squared relu, half of a head rotated, biases; hidden states",
        config=nemotron5(K=2, H=16, sizes=dict(D=48, F=68, V=85, L=3, N=4), attention_bias=True, mlp_bias=True),
        form="5.x",
        seed=380,
        prompt=prompt(8, vocab=85),
        hidden=True,
        must_matter=({"attention_bias": False}, {"mlp_bias": False}, {"hidden_act": "relu"}, {"norm_eps": 1e-1}),
    ),
    GoldenCase(
        name="nemotron_plain",
        twist="no biases but of norms, linear scaling of RoPE, H = D / N",
        config=nemotron5(
            K=1,
            H=12,
            sizes=dict(D=36, F=58, V=80, L=2, N=3),
            rope_parameters={**_HALF_LINEAR},
        ),
        form="5.x",
        seed=381,
        prompt=prompt(9, vocab=80),
        must_matter=({"rope_parameters": {**DEFAULT_ROPE, "partial_rotary_factor": 0.5}},),
    ),
    GoldenCase(
        name="arcee",
        twist="squared relu without a gate, head_dim not D / N; hidden states",
        config=arcee5(K=2, H=10, sizes=dict(D=48, F=70, V=88, L=3, N=4)),
        form="5.x",
        seed=390,
        prompt=prompt(9, vocab=88),
        hidden=True,
        must_matter=({"hidden_act": "silu"},),
    ),
)

_CODE_CASES = (
    GoldenCase(
        name="starcoder2",
        twist="layer norms, biases, no gate, window 6; hidden states",
        config=starcoder2_5(K=2, sizes=dict(D=48, F=64, V=86, L=3, N=4), sliding_window=6, tie_word_embeddings=False),
        form="5.x",
        seed=400,
        prompt=prompt(10, vocab=86),
        hidden=True,
        must_matter=({"sliding_window": 7}, {"norm_epsilon": 1e-1}, {"use_bias": False}),
    ),
    GoldenCase(
        name="starcoder2_plain",
        twist="no window, no biases but of norms, untied",
        config=starcoder2_5(K=1, sizes=dict(D=40, F=62, V=81, L=2, N=4), use_bias=False, tie_word_embeddings=False),
        form="5.x",
        seed=401,
        prompt=prompt(8, vocab=81),
    ),
    GoldenCase(
        name="helium",
        twist="interleaved RoPE, grouped queries; hidden states",
        config=helium5(K=2, sizes=dict(D=48, F=60, V=87, L=3, N=6)),
        form="5.x",
        seed=410,
        prompt=prompt(9, vocab=87),
        hidden=True,
        must_matter=({"rope_parameters": {**DEFAULT_ROPE, "rope_theta": 100.0}},),
    ),
)

UNGATED_CASES = (*_PHI_CASES, *_SQUARED_CASES, *_CODE_CASES)
