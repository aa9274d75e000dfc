"""A part of the table of models, each kind of code once; the whole is rewired by tests.rewire.zoo_report."""

import pytest

from normula.catalog import placement
from normula.rewire.errors import RewireError
from normula.rewire.plan import planned
from normula.rewire.rewire import rewire, rewired
from normula.rewire.understood import understood
from tests.read.fixtures import built, line
from tests.rewire.zoo_report import one_stream

pytest.importorskip("transformers")

REACHED = {
    "bart": ("pre", "sub-ln"),
    "t5": ("post", "layerscale"),
    "xlm": ("pre", "peri"),
    "m2m_100": ("post",),
    "gemma2": ("pre", "qk-norm"),
    "bloom/post-layernorm-residual": ("pre",),
    "cohere2": ("peri", "hybridnorm"),
    "gpt_neox": ("pre", "parallel"),
    "mamba2": ("post", "none"),
    "nanochat": ("pre",),
    "olmo2": ("peri",),
    "qwen3_next": ("mix-ln",),
    "swin": ("post", "rezero"),
    "poolformer": ("peri", "post", "deepnorm"),
    "yolos": ("post", "parallel"),
    "longcat_flash": ("post", "peri"),
    "cvt": ("qk-norm",),
    "deepseek_v2": ("hybridnorm",),
    "lfm2": ("ngpt",),
    "recurrent_gemma": ("completep",),
    "wav2vec2-conformer": ("deepnorm",),
}
"""Lines, and placements that they reach."""

REFUSED = {"mobilebert": "post", "longcat_flash": "gpas", "lxmert": "pre"}
"""Lines and what is not put into them: sublayers without a sum between them, a formula that is too long when written
out, two streams that attend to one another."""


@pytest.mark.parametrize(("identity", "to"), [(one, to) for one, names in REACHED.items() for to in names])
def test_a_line_of_the_table_reaches_a_placement_with_proof(identity: str, to: str) -> None:
    model, args, kwargs = built(line(identity))
    there = understood(model, args, kwargs)
    new = rewired(there, planned(there, placement(to)), accept_inexact=True)
    assert new.rewiring.proof == "replayed"


@pytest.mark.negative
@pytest.mark.parametrize(("identity", "to"), REFUSED.items())
def test_what_cannot_be_rewired_is_refused(identity: str, to: str) -> None:
    model, args, kwargs = built(line(identity))
    with pytest.raises(RewireError):
        rewire(model, to, example=args or kwargs, accept_inexact=True)


def test_the_placements_that_need_one_stream() -> None:
    names = one_stream()
    assert len(names) > 30
    assert not {"residual", "siamese", "prores", "mhc"} & set(names)
