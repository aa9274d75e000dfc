"""The catalogue: every entry builds, is told from the others, gives its sources, and has its papers' constants."""

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest

from normula.catalog import Entry, entries, entry, placement
from normula.explain import explain
from normula.formula import Placement
from normula.formula.parse import parse_number
from normula.formula.run import Runner, number
from normula.formula.words import SUBLAYERS
from normula.oracle import run, weights
from normula.spec import Spec, plan
from normula.spec.kinds import NORM_KINDS
from normula.torch import build
from tests.cases import small
from tests.near import assert_near

NAMES = [one.name for one in entries()]
MANY = 32
"""The least number of entries that counts as the whole literature."""

WIDE = dict(width=4, heads=1, hidden=4)
"""As narrow as a deep stack can be without a warning; constants do not depend on the width."""


def specs(name: str, layers: int, decoder: int | None = None, init: str = "paper") -> Spec:
    """A stack with this placement; with `decoder`, the encoder of such a DeepNorm decoder."""
    if decoder is None:
        return Spec(placement=name, layers=layers, init=init, **WIDE)
    encoder = Spec(placement=name, layers=layers, init=init, **WIDE)
    return Spec(
        placement="deepnorm-decoder",
        layers=decoder,
        init=init,
        encoder=encoder,
        sublayers=("attn", "cross", "mlp"),
        **WIDE,
    )


written = cache(plan)
"""The plan of a spec, written once: a thousand layers take a second."""


def skip_factor(spec: Spec, layer: int = 1, encoder: bool = False) -> float:
    """What a step multiplies its stream by, with branches at 0, norms left out and gains at their start."""
    stack = written(spec).encoder if encoder else written(spec)
    assert stack is not None
    step = stack.layers[layer - 1][0]
    starts = {gain.index: stack.parameters[step.path(gain.index)].role.start for gain in step.formula.gains}
    runner = Runner(
        step.symbols, lambda call, value: 0.0 if call.word in SUBLAYERS else value, lambda gain: starts[gain.index]
    )
    streams = {name: 1.0 if name == "x" else 0.0 for name in step.formula.streams}
    return float(runner.run(step.formula.tree, streams)["x"])


def factor(spec: Spec, matrix: str = "attn.f.v", layer: int = 1, encoder: bool = False) -> float:
    """The factor on the first draw of a matrix."""
    prefix = "encoder." if encoder else ""
    return written(spec).parameters[f"{prefix}layers.{layer - 1}.{matrix}.weight"].factor


def assert_prints(value: float, printed: str) -> None:
    """The value has the digits of a table."""
    digits = len(printed.partition(".")[2])
    assert abs(value - float(printed)) <= 0.5 * 10**-digits * (1 + 1e-6), f"{value} is printed as {printed}"


# ------------------------------------------------------------------------------------------------------------ entries


def test_the_catalogue_holds_the_literature() -> None:
    assert len(NAMES) >= MANY


def test_no_two_entries_share_a_name_in_any_case() -> None:
    counts = Counter(name.lower() for one in entries() for name in {name.lower() for name in one.names})
    assert [name for name, count in counts.items() if count > 1] == []
    for one in entries():
        assert all(entry(name) is one and entry(name.upper()) is one for name in one.names)


def test_no_two_entries_are_the_same_placement() -> None:
    """What differs is a formula, what surrounds it, or the initial weights."""
    for i, one in enumerate(entries()):
        for other in entries()[:i]:
            assert one.placement != other.placement, f"{one.name} and {other.name} are the same"


@pytest.mark.parametrize("one", entries(), ids=NAMES)
def test_an_entry_says_where_its_statements_come_from(one: Entry) -> None:
    assert (one.paper is None) != (one.origin is None)
    for text in (one.title, one.cost, one.when, one.when_not, one.advice_source, one.initial_source):
        assert text.strip()
    assert one.notes
    assert one.predicts
    assert all(prediction.source and prediction.statement.endswith(".") for prediction in one.predicts)
    assert all(user.source for user in one.users)
    assert one.paper is None or (one.paper.authors and one.paper.title and 2017 <= one.paper.year <= 2026)
    assert one.norm in NORM_KINDS


@pytest.mark.parametrize("one", entries(), ids=NAMES)
def test_the_constants_of_an_entry_are_numbers(one: Entry) -> None:
    depths = {"l": 2, "L": 12, "S": 24, "Ld": 6, "Le": 12}
    for constant in one.constants:
        assert math.isfinite(number(parse_number(constant.expr), depths)), constant.expr


@pytest.mark.parametrize("one", entries(), ids=NAMES)
def test_an_entry_travels_as_json_and_explains_itself(one: Entry) -> None:
    assert Placement.from_dict(one.placement.to_dict()) == one.placement
    found = explain(one.name)
    assert found.entry is one
    assert one.title in str(found)
    assert all(
        f"{other.name}: the same formula, " in str(found).replace("\n" + 18 * " ", " ") for other in found.others
    )


@pytest.mark.contract
@pytest.mark.parametrize("layers", [1, 4, 5])
@pytest.mark.parametrize("init", ["xavier", "paper"])
@pytest.mark.parametrize("name", NAMES)
def test_every_entry_builds_and_gives_what_the_oracle_gives(name: str, init: str, layers: int) -> None:
    torch = pytest.importorskip("torch")
    spec = small(name, init=init, layers=layers)
    random = np.random.default_rng(0)
    x, source = (random.standard_normal((2, tokens, spec.width)) for tokens in (5, 4))
    truth = run(spec, weights(spec), x, source=source if spec.encoder else None).output
    others = {"source": torch.tensor(source)} if spec.encoder else {}
    with torch.no_grad():
        output = build(spec).double()(torch.tensor(x), **others)
    # the model's own weights are drawn in float64 and kept in float32; a stack without norms multiplies their rounding
    assert_near(output.numpy(), truth, 1e-5, name)


@pytest.mark.negative
@pytest.mark.parametrize("name", ["deepnorm-encoder", "deepnorm-decoder"])
def test_a_constant_of_an_encoder_decoder_needs_both_depths(name: str) -> None:
    with pytest.raises(ValueError, match="give its spec an encoder"):
        plan(Spec(placement=name))


# ---------------------------------------------------------------------------------------------------------- constants

DEEPNORM = {
    1: ("1.1892", ".5946"),
    2: ("1.4142", ".5000"),
    4: ("1.6818", ".4204"),
    6: ("1.8612", ".3799"),
    12: ("2.2134", ".3195"),
    24: ("2.6321", ".2686"),
    48: ("3.1302", ".2259"),
    96: ("3.7224", ".1900"),
    100: ("3.7606", ".1880"),
    500: ("5.6234", ".1257"),
    1000: ("6.6874", ".1057"),
}
"""Layers of one stack: alpha, beta (Wang et al., DeepNet, 2022, the table of section 4)."""

DEEPNORM_SIDES = {
    6: ("1.4179", ".4970", "2.0598", ".3433"),
    12: ("1.7609", ".4002", "2.4495", ".2887"),
    18: ("1.9987", ".3526", "2.7108", ".2608"),
    50: ("2.7505", ".2562", "3.4996", ".2021"),
    100: ("3.4157", ".2063", "4.1618", ".1699"),
    200: ("4.2419", ".1661", "4.9492", ".1429"),
}
"""Layers of each side: alpha and beta of the encoder, then of the decoder (the same table)."""

SUB_LN = {6: "1.5764", 12: "1.7827", 24: "1.9675", 48: "2.1364", 100: "2.3018"}
ADMIN = {6: "2.0170", 12: "2.6013", 18: "3.0408", 24: "3.4045", 48: "4.4948", 96: "5.9727", 100: "6.0746"}
T_FIXUP_DECODER = {6: ".3689", 12: ".3102", 24: ".2608", 48: ".2193", 100: ".1826", 200: ".1535"}
T_FIXUP_ENCODER = {6: ".4281", 12: ".3600", 24: ".3027", 100: ".2119", 200: ".1782"}
GPT_2 = {12: ".2041", 24: ".1443", 48: ".1021", 96: ".0722"}


@pytest.mark.parametrize("layers", DEEPNORM)
def test_deepnorms_constants(layers: int) -> None:
    alpha, beta = DEEPNORM[layers]
    spec = specs("deepnorm", layers)
    assert_prints(skip_factor(spec, layers), alpha)
    assert_prints(factor(spec, layer=layers), beta)
    assert skip_factor(spec) * factor(spec) == pytest.approx(2**-0.5, rel=1e-12)


@pytest.mark.parametrize("layers", DEEPNORM_SIDES)
def test_deepnorms_constants_on_the_sides_of_an_encoder_decoder(layers: int) -> None:
    encoder_alpha, encoder_beta, decoder_alpha, decoder_beta = DEEPNORM_SIDES[layers]
    spec = specs("deepnorm-encoder", layers, decoder=layers)
    assert_prints(skip_factor(spec, encoder=True), encoder_alpha)
    assert_prints(factor(spec, encoder=True), encoder_beta)
    assert_prints(skip_factor(spec), decoder_alpha)
    assert_prints(factor(spec, "cross.f.o"), decoder_beta)
    assert skip_factor(spec, encoder=True) * factor(spec, encoder=True) == pytest.approx(0.81 * 0.87, rel=1e-12)
    assert skip_factor(spec) * factor(spec) == pytest.approx(2**-0.5, rel=1e-12)


def test_deepnorms_encoder_sees_the_depth_of_both_sides_and_its_decoder_only_its_own() -> None:
    shallow, deep = specs("deepnorm-encoder", 4, decoder=1), specs("deepnorm-encoder", 4, decoder=16)
    ratio = skip_factor(deep, encoder=True) / skip_factor(shallow, encoder=True)
    assert ratio == pytest.approx(16 ** (1 / 16), rel=1e-12)
    assert skip_factor(specs("deepnorm-encoder", 1, decoder=16)) == skip_factor(deep)


@pytest.mark.parametrize("layers", SUB_LN)
def test_sub_lns_factor(layers: int) -> None:
    assert_prints(factor(specs("sub-ln", layers), "mlp.f.up"), SUB_LN[layers])


@pytest.mark.parametrize("layers", ADMIN)
def test_admins_start(layers: int) -> None:
    spec = specs("admin", layers)
    assert_prints(skip_factor(spec), ADMIN[layers])
    omega, n = skip_factor(spec, layers), 2 * layers
    kept = (omega / math.sqrt(omega**2 + 1)) ** n  # of a gradient on the skip path, at branch variance 1
    assert kept == pytest.approx((1 - math.log(n + 1) / (n + 1)) ** (n / 2), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "layers", "printed"),
    [("t-fixup-decoder", layers, printed) for layers, printed in T_FIXUP_DECODER.items()]
    + [("t-fixup-encoder", layers, printed) for layers, printed in T_FIXUP_ENCODER.items()],
)
def test_t_fixups_factors(name: str, layers: int, printed: str) -> None:
    assert_prints(factor(specs(name, layers)), printed)


@pytest.mark.parametrize("name", ["deepnorm", "sub-ln", "t-fixup-decoder", "t-fixup-encoder"])
def test_a_factor_is_on_what_reads_and_writes_the_branch_and_not_on_queries_and_keys(name: str) -> None:
    spec = specs(name, 6)
    for matrix in ("attn.f.v", "attn.f.o", "mlp.f.up", "mlp.f.down"):
        assert factor(spec, matrix) == factor(spec, layer=6) != 1
    assert factor(spec, "attn.f.q") == factor(spec, "attn.f.k") == 1
    assert factor(specs(name, 6, init="xavier")) == 1


@pytest.mark.parametrize("layers", GPT_2)
def test_gpt_2s_start_shrinks_what_writes_to_the_stream(layers: int) -> None:
    scaled, normal = (weights(specs("gpt2", layers, init=init)) for init in ("paper", "normal"))
    for matrix in ("attn.f.o", "mlp.f.down"):
        name = f"layers.{layers - 1}.{matrix}.weight"
        ratio = scaled[name] / normal[name]
        assert_prints(float(ratio[0, 0]), GPT_2[layers])
        np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-12)
    np.testing.assert_array_equal(scaled["layers.0.mlp.f.up.weight"], normal["layers.0.mlp.f.up.weight"])


@pytest.mark.parametrize(("layers", "last"), [(3, 0), (4, 1), (7, 1), (8, 2), (12, 3), (24, 6), (27, 6)])
def test_mix_ln_is_post_ln_in_the_first_quarter_rounded_down(layers: int, last: int) -> None:
    post, pre = placement("post").formula, placement("pre").formula
    found = [steps[0].formula for steps in written(specs("mix-ln", layers)).layers]
    assert found == [post] * last + [pre] * (layers - last)


def test_hybridnorm_star_differs_from_hybridnorm_in_the_first_layer_only() -> None:
    plain, star = (written(specs(name, 4)).layers for name in ("hybridnorm", "hybridnorm-star"))
    assert [a[0].formula == b[0].formula for a, b in zip(plain, star, strict=True)] == [False, True, True, True]
    assert str(star[0][0].formula) == "x = x + attn(norm(x), qkv=norm); x = x + mlp(norm(x))"


@pytest.mark.parametrize("layers", [1, 2, 3, 12])
def test_nanochats_factors_are_those_of_its_code(layers: int) -> None:
    parameters = written(specs("nanochat", layers)).parameters
    for i in range(layers):  # nanochat/gpt.py, init_weights
        kept, again = 1.15 - 0.10 * i / max(layers - 1, 1), 0.20 - 0.15 * i / max(layers - 1, 1)
        starts = [p.role.start for name, p in parameters.items() if name.startswith(f"layers.{i}.gain_skip")]
        assert starts == pytest.approx([kept, again], rel=1e-12)
    assert not weights(specs("nanochat", layers))["layers.0.mlp.f.down.weight"].any()


@pytest.mark.parametrize("layers", [1, 6, 96])
def test_other_starts_and_constants_depend_on_depth_as_published(layers: int) -> None:
    gains = {
        "depth-scaled-sandwich": ("attn.norm_out.weight", layers**-0.5),
        "swin-v2": ("mlp.norm_out.weight", 0.0),
        "ngpt": ("attn.gain", 0.05),
        "gpas": ("mlp.gain", 0.0),
    }
    for name, (path, start) in gains.items():
        found = written(specs(name, layers)).parameters[f"layers.{layers - 1}.{path}"].role.start
        assert found == pytest.approx(start, rel=1e-12), name
    assert skip_factor(specs("keel", layers)) == 2 * layers  # the number of sublayers
    for name in ("pre", "peri", "sub-ln", "lns", "completep", "dyt"):
        assert skip_factor(specs(name, layers), layers) == 1


SAME_FUNCTION = {
    "gpt2": "pre",
    "t-fixup-encoder": "none",
    "t-fixup-decoder": "none",
}


@pytest.mark.parametrize("name", SAME_FUNCTION)
def test_an_entry_that_differs_by_its_initial_weights_computes_the_same(name: str) -> None:
    mine, theirs = placement(name), placement(SAME_FUNCTION[name])
    assert mine.computes_as(theirs)
    assert mine.initial != theirs.initial
    assert f"{SAME_FUNCTION[name]}: the same formula, with other initial weights" in str(explain(name))
