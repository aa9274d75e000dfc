"""Which word of a Program's vocabulary each of JAX's primitives is; names are those that PyTorch has for the same."""

from __future__ import annotations

from typing import Final

from normula.record.program import Kind


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CALLS: Final = _words(
    """
    jit pjit closed_call core_call xla_call remat checkpoint remat2 custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr custom_lin composite core_closed_call run_scoped
    """
)
"""Primitives that run a jaxpr once."""

VIEWS: Final = {
    "transpose": "permute",
    "squeeze": "squeeze",
    "slice": "slice",
    "dynamic_slice": "slice",
    "split": "split",
    "convert_element_type": "_to_copy",
    "reduce_precision": "_to_copy",
    "copy": "clone",
    "copy_p": "clone",
    "device_put": "clone",
    "sharding_constraint": "alias",
    "optimization_barrier": "alias",
    "stop_gradient": "detach",
    "rev": "flip",
    "pad": "constant_pad_nd",
    "real": "real",
    "imag": "imag",
    "conj": "_conj",
    "pvary": "alias",
    "reshard": "alias",
    "name": "alias",
    "bitcast_convert_type": "view",
    "tie_in": "alias",
    "expand_dims": "unsqueeze",
}

PLAIN: Final[dict[str, Kind]] = {
    "add": "add",
    "add_any": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "neg": "neg",
    "pow": "pow",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "concatenate": "join",
    "fft": "fft",
    "cumsum": "scan",
    "cumprod": "scan",
    "cumlogsumexp": "scan",
    "cummax": "scan",
    "cummin": "scan",
    "triangular_solve": "scan",
    "argmax": "choose",
    "argmin": "choose",
    "top_k": "choose",
    "approx_top_k": "choose",
    "sort": "choose",
    "reduce_window_max": "pool",
    "reduce_window_min": "pool",
    "reduce_window_sum": "pool",
    "reduce_window": "pool",
}

REDUCTIONS: Final = {
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
}

POINTWISE: Final = {
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "tanh": "tanh",
    "logistic": "sigmoid",
    "erf": "erf",
    "erfc": "erfc",
    "erf_inv": "erfinv",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "atan2": "atan2",
    "sign": "sign",
    "floor": "floor",
    "ceil": "ceil",
    "round": "round",
    "cbrt": "cbrt",
    "rem": "fmod",
    "complex": "complex",
    "max": "maximum",
    "min": "minimum",
    "nextafter": "nextafter",
    "lgamma": "lgamma",
    "digamma": "digamma",
    "bessel_i0e": "special_i0",
}

COMPARISONS: Final = _words(
    """
    eq ne lt le gt ge and or not xor is_finite shift_left shift_right_logical shift_right_arithmetic
    reduce_and reduce_or reduce_xor population_count clz eq_to le_to lt_to
    """
)

WRITES: Final = _words(
    """
    dynamic_update_slice scatter scatter-add scatter_add scatter-mul scatter_mul scatter-min scatter_min scatter-max
    scatter_max scatter-sub scatter_sub
    """
)

RANDOM: Final = _words(
    """
    random_bits random_seed random_split random_fold_in random_wrap random_unwrap random_clone random_gamma
    threefry2x32 rng_bit_generator rng_uniform
    """
)
