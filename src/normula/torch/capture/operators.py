"""Which word of a Program's vocabulary each of PyTorch's operators is."""

from __future__ import annotations

from typing import Final

from normula.record.program import Kind


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS: Final = _words(
    """
    view _unsafe_view reshape _reshape_alias permute transpose t expand squeeze unsqueeze slice select alias detach
    clone contiguous _to_copy lift lift_fresh lift_fresh_copy unfold as_strided diagonal repeat flip roll
    constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d
    reflection_pad3d index_select gather index narrow split chunk unbind split_with_sizes view_as_real
    view_as_complex real imag native_dropout dropout movedim tile repeat_interleave masked_select pixel_shuffle
    pixel_unshuffle channel_shuffle take take_along_dim im2col col2im _conj resolve_conj masked_fill tril triu
    rot90 squeeze_copy view_copy expand_copy permute_copy unfold_backward _pin_memory to _nested_view_from_buffer
    slice_backward select_backward diagonal_backward alpha_dropout feature_dropout
    """
)
"""Each element of the result is an element of the first input, or a fill."""

INDEXED: Final = _words("index_select gather index masked_select take take_along_dim")

JOINS: Final = _words("cat stack concat hstack vstack block_diag")

WRITES: Final = _words(
    """
    index_put _index_put_impl index_add index_copy index_fill scatter scatter_add scatter_reduce slice_scatter
    select_scatter diagonal_scatter as_strided_scatter masked_scatter index_reduce put
    """
)

POINTWISE: Final = _words(
    """
    gelu silu relu relu6 tanh sigmoid exp exp2 expm1 log log2 log10 log1p softplus hardswish hardsigmoid hardtanh
    leaky_relu elu celu selu mish erf erfc erfinv cos sin tan acos asin atan atan2 cosh sinh abs sign sgn floor
    ceil round trunc frac reciprocal square clamp clamp_min clamp_max maximum minimum glu prelu _prelu_kernel polar
    complex logit nan_to_num threshold hardshrink softshrink log_sigmoid_forward logaddexp logaddexp2 hypot fmod
    remainder floor_divide addcmul addcdiv lerp rrelu_with_noise special_i0 angle xlogy _weight_norm_interface
    copysign heaviside digamma lgamma asinh acosh atanh sinc fmax fmin
    """
)

COMPARISONS: Final = _words(
    """
    eq ne lt le gt ge logical_not logical_and logical_or logical_xor bitwise_not bitwise_and bitwise_or bitwise_xor
    isnan isinf isfinite isin any all bucketize searchsorted histc bincount __and__ __or__ __xor__ __lshift__
    __rshift__ bitwise_left_shift bitwise_right_shift is_nonzero equal allclose _is_all_true _is_any_true unique2
    _unique2 unique_consecutive unique_dim signbit
    """
)

REDUCTIONS: Final = {
    "mean": "mean",
    "var": "var",
    "var_mean": "var",
    "std": "std",
    "std_mean": "std",
    "sum": "sum",
    "nansum": "sum",
    "amax": "max",
    "amin": "min",
    "max": "max",
    "min": "min",
    "aminmax": "min",
    "prod": "prod",
    "logsumexp": "logsumexp",
    "linalg_vector_norm": "norm",
    "norm": "norm",
    "median": "median",
    "count_nonzero": "count",
}

FACTORIES: Final = _words(
    """
    arange zeros ones full empty scalar_tensor rand randn randint randperm eye linspace logspace zeros_like
    ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full new_empty
    new_empty_strided empty_strided tril_indices triu_indices bernoulli normal uniform exponential random
    hann_window hamming_window kaiser_window bartlett_window blackman_window from_file _efficientzerotensor
    multinomial bernoulli cauchy log_normal geometric empty_permuted
    """
)

ATTENTIONS: Final = _words(
    """
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_fused_attention_overrideable _flash_attention_forward _efficient_attention_forward
    _scaled_dot_product_attention_math_for_mps
    """
)

BATCHNORMS: Final = _words(
    """
    native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm
    miopen_batch_norm batch_norm_elemt _batch_norm_with_update _batch_norm_no_update
    """
)

PLAIN: Final[dict[str, Kind]] = {
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "neg": "neg",
    "div": "div",
    "true_divide": "div",
    "mul": "mul",
    "pow": "pow",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "_log_softmax": "softmax",
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "dot": "matmul",
    "vdot": "matmul",
    "matmul": "matmul",
    "_grouped_mm": "matmul",
    "_scaled_mm": "matmul",
    "mkldnn_linear": "matmul",
    "_mkldnn_linear": "matmul",
    "linear": "matmul",
    "_trilinear": "matmul",
    "cumsum": "scan",
    "cumprod": "scan",
    "logcumsumexp": "scan",
    "cummax": "scan",
    "cummin": "scan",
    "linalg_solve_triangular": "scan",
    "linalg_inv_ex": "scan",
    "mkldnn_rnn_layer": "recurrence",
    "_cudnn_rnn": "recurrence",
    "_thnn_fused_lstm_cell": "recurrence",
    "_thnn_fused_gru_cell": "recurrence",
    "lstm": "recurrence",
    "gru": "recurrence",
    "rnn_tanh": "recurrence",
    "rnn_relu": "recurrence",
    "_fft_r2c": "fft",
    "_fft_c2c": "fft",
    "_fft_c2r": "fft",
    "topk": "choose",
    "sort": "choose",
    "argsort": "choose",
    "argmax": "choose",
    "argmin": "choose",
    "kthvalue": "choose",
    "mode": "choose",
    "nonzero": "choose",
    "avg_pool1d": "pool",
    "avg_pool2d": "pool",
    "avg_pool3d": "pool",
    "max_pool1d": "pool",
    "max_pool2d_with_indices": "pool",
    "max_pool3d_with_indices": "pool",
    "max_pool1d_with_indices": "pool",
    "_adaptive_avg_pool2d": "pool",
    "_adaptive_avg_pool3d": "pool",
    "adaptive_avg_pool1d": "pool",
    "adaptive_max_pool2d": "pool",
    "adaptive_max_pool1d": "pool",
    "upsample_linear1d": "resample",
    "upsample_nearest1d": "resample",
    "upsample_nearest2d": "resample",
    "upsample_bilinear2d": "resample",
    "upsample_bicubic2d": "resample",
    "upsample_trilinear3d": "resample",
    "_upsample_bilinear2d_aa": "resample",
    "_upsample_bicubic2d_aa": "resample",
    "_upsample_nearest_exact2d": "resample",
    "grid_sampler_2d": "resample",
    "grid_sampler_3d": "resample",
}
"""Operators with one word each and nothing else to say."""
