"""Here live the kinds of norm, the activations and the rules for initial weights: their names, as data.

No arithmetic: the oracle and each framework bring a function for every name in these tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class NormParameter(NamedTuple):
    """A learned parameter of a norm: its name, whether it has one value a feature, and the value it starts at."""

    name: str
    per_feature: bool
    start: float

    def shape(self, width: int) -> tuple[int, ...]:
        """The array's shape for features of this width: (D,), or () for a scalar.

        >>> NormParameter("weight", True, 1.0).shape(64), NormParameter("alpha", False, 0.5).shape(64)
        ((64,), ())
        """
        return (width,) if self.per_feature else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NormKind:
    """A kind of norm: what it learns (in the order its function takes it) and what it does to a token's features.

    `centres` says that it subtracts the mean over the features, so that its output (before the gain) sums to zero.
    `uses_eps` says that it divides by a statistic, kept from zero by epsilon; a kind without one has no use for it.
    """

    name: str
    parameters: tuple[NormParameter, ...]
    centres: bool
    uses_eps: bool
    title: str


_WEIGHT = NormParameter("weight", True, 1.0)
_BIAS = NormParameter("bias", True, 0.0)
_ALPHA = NormParameter("alpha", False, 0.5)  # both papers' default; for language models DyT's tunes it by width
_SHIFT = NormParameter("shift", False, 0.0)

NORM_KINDS: Mapping[str, NormKind] = {
    kind.name: kind
    for kind in (
        NormKind(
            name="layernorm",
            parameters=(_WEIGHT, _BIAS),
            centres=True,
            uses_eps=True,
            title="subtract the mean, divide by the standard deviation (Ba et al., 2016, arXiv 1607.06450)",
        ),
        NormKind(
            name="rmsnorm",
            parameters=(_WEIGHT,),
            centres=False,
            uses_eps=True,
            title="divide by the root mean square (Zhang and Sennrich, 2019, arXiv 1910.07467)",
        ),
        NormKind(
            name="l2norm",
            parameters=(),
            centres=False,
            uses_eps=True,
            title="divide by the length, so that it becomes 1; nothing learned",
        ),
        NormKind(
            name="dyt",
            parameters=(_ALPHA, _WEIGHT, _BIAS),
            centres=False,
            uses_eps=False,
            title="tanh(alpha x), with no statistics (Zhu et al., 2025, arXiv 2503.10622)",
        ),
        NormKind(
            name="derf",
            parameters=(_ALPHA, _SHIFT, _WEIGHT, _BIAS),
            centres=False,
            uses_eps=False,
            title="erf(alpha x + shift), with no statistics (Chen et al., 2025, arXiv 2512.10938)",
        ),
        NormKind(
            name="none",
            parameters=(),
            centres=False,
            uses_eps=False,
            title="the identity: the value goes through unchanged",
        ),
    )
}

ACTIVATIONS: Mapping[str, str] = {
    "relu": "max(x, 0)",
    "gelu": "x Phi(x) with the exact normal distribution function (Hendrycks and Gimpel, 2016, arXiv 1606.08415)",
    "gelu_tanh": "x Phi(x) with the tanh approximation of the same paper, as GPT-2 has it",
    "silu": "x sigmoid(x), also called swish (the same paper)",
}

INIT_RULES: Mapping[str, str] = {
    "xavier": "normal of variance 2/(in + out), biases 0 (Glorot and Bengio, 2010, with the normal distribution)",
    "xavier_qkv": "xavier, with queries, keys and values as one matrix: where torch.nn.Transformer starts",
    "normal": "normal of standard deviation 0.02, biases 0 (the width GPT and BERT use)",
    "torch": "uniform within 1/sqrt(in), weights and biases alike: the default of torch.nn.Linear",
    "scaled": "as normal, and what writes to the stream divided by sqrt(sublayers in all) (Radford et al., 2019)",
    "paper": "the rule that the placement's own paper states",
}
