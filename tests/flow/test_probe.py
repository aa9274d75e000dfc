"""Probes: which are blind where, and that a blind one says so."""

import numpy as np
import pytest
import torch

from normula.flow import depth_point, flow
from normula.flow.findings import NULL, findings
from normula.record import Finding, Flow
from normula.spec import Spec
from normula.spec.spec import NormulaWarning
from normula.torch import build
from normula.torch.measure import measure
from tests.cases import small


def stack(placement: str, layers: int = 3, width: int = 16, **fields: object) -> Spec:
    return Spec(placement=placement, layers=layers, width=width, heads=1, **fields)  # type: ignore[arg-type]


def kinds(found: Flow) -> list[str]:
    return [finding.kind for finding in found.findings]


@pytest.mark.negative
@pytest.mark.parametrize("layers", [1, 3, 20])
@pytest.mark.parametrize("name", ["post", "pre", "deepnorm", "peri"])
def test_the_sum_is_blind_behind_a_layernorm_at_every_depth(name: str, layers: int) -> None:
    found = flow(stack(name, layers), probe="sum", seeds=2)
    assert found.void
    assert found.findings[0].kind == "void-probe"
    assert found.findings[0].weight == "void"
    for words in ("Void", "'sum' lies in the null space of the last norm", "at any depth", "'random' or 'loss'"):
        assert words in found.findings[0].text
    assert max(one.norm_passes for one in found.passes) < NULL
    # what the gradient is must not be said where it was not measured
    assert not {"skip-path", "gradient-vanishes", "gradient-explodes", "no-gradient"} & set(kinds(found))


@pytest.mark.negative
@pytest.mark.parametrize(
    "spec",
    [
        stack("pre-no-final", 20),
        stack("none"),
        stack("pre", final="x"),
        stack("post", norm="rmsnorm"),
        stack("post", norm="none"),
        stack("pre", norm="dyt"),
        stack("post", vocab=7, context=16),
    ],
    ids=["pre without final norm", "no norms", "final x", "rmsnorm", "norm none", "dyt", "behind a head"],
)
def test_the_sum_sees_where_no_last_norm_centres(spec: Spec) -> None:
    found = flow(spec, probe="sum", seeds=1)
    assert not found.void
    assert "skip-path" in kinds(found)


@pytest.mark.parametrize("probe", ["random", "loss"])
@pytest.mark.parametrize("width", [8, 64])
@pytest.mark.parametrize("name", ["post", "pre", "pre-no-final", "peri"])
def test_the_other_probes_see(name: str, width: int, probe: str) -> None:
    task = "copy" if probe == "loss" else None
    assert not flow(stack(name, 3, width), probe=probe, task=task).void


@pytest.mark.parametrize("norm", ["rmsnorm", "l2norm"])
def test_a_probe_along_the_output_is_blind_behind_a_norm_that_fixes_its_length(norm: str) -> None:
    spec = stack("post", norm=norm)
    model = build(spec)
    x = torch.tensor(np.random.default_rng(0).standard_normal((2, 4, 16)), dtype=torch.float32)

    along = measure(model, x, lambda output: (output * output.detach()).sum(), seed=0)
    other = measure(model, x, lambda output: (output * output.detach().flip(-1)).sum(), seed=0)

    assert along.norm_passes < NULL
    assert findings([along], spec, "along")[0].kind == "void-probe"
    assert other.norm_passes > 0.5
    assert findings([other], spec, "other")[0].weight != "void"


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_the_share_that_a_norm_lets_through_counts_its_gain(norm: str) -> None:
    """Behind the gain the blind direction is another: 1 / gain for LayerNorm, output / gain**2 for RMSNorm."""
    spec = small("post", norm=norm, width=16, eps=1e-5)
    model = build(spec)
    gain = torch.tensor(np.random.default_rng(1).uniform(0.5, 1.5, 16), dtype=torch.float32)
    with torch.no_grad():
        model.layers[-1].mlp.norm_sum.weight.copy_(gain)
    x = torch.tensor(np.random.default_rng(0).standard_normal((2, 4, 16)), dtype=torch.float32)

    def blind(output: torch.Tensor) -> torch.Tensor:
        return (output / gain if norm == "layernorm" else output * output.detach() / gain**2).sum()

    assert measure(model, x, blind, seed=0).norm_passes < NULL
    assert measure(model, x, torch.sum, seed=0).norm_passes > 10 * NULL


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("name", ["post", "pre", "peri"])
@pytest.mark.parametrize("probe", ["random", "sum"])
def test_over_one_or_two_features_every_probe_is_blind_for_a_reason_of_its_own(
    name: str, width: int, probe: str
) -> None:
    with pytest.warns(NormulaWarning, match="carries almost nothing"):
        spec = stack(name, width=width)
    with pytest.warns(NormulaWarning):
        found = flow(spec, probe=probe)
    assert found.void
    assert "null space" not in found.findings[0].text
    assert f"a norm over {width} feature{'s' * (width > 1)} has an output that cannot move" in found.findings[0].text
    assert found.findings[0].text.endswith("Use a larger width.")


@pytest.mark.negative
@pytest.mark.filterwarnings("ignore::normula.spec.spec.NormulaWarning")
def test_two_features_under_rmsnorm_can_still_turn() -> None:
    assert not flow(stack("post", width=2, norm="rmsnorm")).void


def test_the_default_probe_gives_pre_and_post_ln_gradients_of_one_size() -> None:
    """At three layers neither vanishes; a sum as the loss seems to prove that Post-LN does."""
    post, pre = (flow(stack(name, 3, 64)).passes for name in ("post", "pre"))
    for one, other in zip(post, pre, strict=True):
        assert 0.1 < one.steps[0].gradient / other.steps[0].gradient < 10
        assert 0.1 < one.input_gradient < 10


def test_initialisation_alone_is_said_to_be_only_that() -> None:
    found = flow(stack("post"))
    note = next(finding for finding in found.findings if finding.kind == "initialisation-only")
    assert note == Finding(
        kind="initialisation-only",
        weight="note",
        text="Initialisation alone does not say whether a stack trains: look at the first training steps as well.",
    )
    words = " ".join(finding.text for finding in found.findings)
    assert not any(word in words for word in ("healthy", "sick", "vanishes", "explodes"))


@pytest.mark.parametrize("probe", ["random", "sum"])
def test_a_depth_point_carries_the_verdict_on_its_probe(probe: str) -> None:
    point = depth_point(stack("post"), probe=probe)
    assert point.void == (probe == "sum")
    assert (point.name, point.init, point.width, point.depth) == ("post", "xavier", 16, 3)
    for mean, least, most in (point.input_gradient, point.skip_gradient, point.rms, point.token_cosine):
        assert least <= mean <= most
    found = flow(stack("post"), probe=probe)
    shares = [one.input_gradient / one.output_gradient for one in found.passes]
    assert point.input_gradient == (pytest.approx(sum(shares) / 3), min(shares), max(shares))


def test_a_probe_is_the_same_direction_for_every_placement_and_has_length_one() -> None:
    passes = [flow(stack(name), seeds=[5]).passes[0] for name in ("post", "pre", "none")]
    assert [one.output_gradient for one in passes] == [pytest.approx(1.0)] * 3
    assert len({one.steps[0].rms_before for one in passes}) == 1
