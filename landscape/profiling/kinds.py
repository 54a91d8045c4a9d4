"""Operators by kinds that people understand, and the floating-point operations of products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

PRODUCTS, ELEMENTWISE, OTHER = "matrix products, convolutions", "elementwise arithmetic", "other operators"
DISPATCH = "Python, autograd and dispatch"
"""What is no operator's own work: the interpreter, the engine of autograd, views, and on the way to an operator."""

_NAMES: Mapping[str, str] = {
    PRODUCTS: """
        mm addmm bmm baddbmm mv addmv convolution_backward mkldnn_convolution _slow_conv2d_forward
        _slow_conv2d_backward thnn_conv2d cudnn_convolution miopen_convolution _conv_depthwise2d mkldnn_linear
        slow_conv_dilated2d slow_conv_transpose2d convolution_overrideable _cudnn_rnn lstm
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
    """,
    "pooling, normalisation, losses": """
        max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward
        _adaptive_avg_pool2d _adaptive_avg_pool2d_backward native_group_norm native_group_norm_backward
        native_batch_norm native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward
        native_layer_norm native_layer_norm_backward _softmax _softmax_backward_data _log_softmax
        _log_softmax_backward_data nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward
        mse_loss mse_loss_backward var_mean upsample_bilinear2d upsample_bilinear2d_backward
    """,
    ELEMENTWISE: """
        add add_ sub sub_ rsub mul mul_ div div_ neg neg_ abs sqrt rsqrt square pow exp log log1p sigmoid tanh
        sigmoid_backward tanh_backward relu relu_ clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_
        threshold_backward leaky_relu hardtanh hardtanh_backward hardtanh_ gelu gelu_backward silu silu_backward
        addcmul addcmul_ addcdiv addcdiv_ lerp lerp_ where maximum minimum eq ne gt lt ge le sign reciprocal
        isfinite logical_and logical_not logical_or bitwise_and bitwise_not bitwise_or floor round remainder
        _foreach_add _foreach_add_ _foreach_mul _foreach_mul_ masked_fill masked_fill_ dropout native_dropout
    """,
    "sums and norms": """
        sum mean norm linalg_vector_norm dot vdot amax amin max min argmax argmin any all std var cumsum prod
        logsumexp bincount count_nonzero
    """,
    "gathering and random numbers": """
        index index_select gather take index_put_ _index_put_impl_ index_add index_add_ scatter scatter_
        scatter_add scatter_add_ randperm randint random_ rand randn uniform_ normal_ bernoulli_ flip roll
        constant_pad_nd embedding embedding_dense_backward sort topk arange one_hot nonzero unique_dim
    """,
    "copies and memory": """
        copy_ fill_ zero_ empty empty_like empty_strided cat stack _to_copy clone contiguous resize_ new_empty
        new_zeros zeros zeros_like ones ones_like full full_like _local_scalar_dense item _foreach_copy_ set_
        new_full new_ones scalar_tensor lift_fresh repeat
    """,
    DISPATCH: """
        view _unsafe_view reshape _reshape_alias t transpose permute as_strided as_strided_ expand expand_as
        unsqueeze squeeze slice select split split_with_sizes narrow unbind detach detach_ alias flatten
        unflatten chunk resolve_conj resolve_neg conj real to type_as linear matmul conv2d convolution
        _convolution max_pool2d cross_entropy_loss nll_loss nll_loss_nd log_softmax softmax group_norm
        batch_norm _batch_norm_impl_index layer_norm adaptive_avg_pool2d avg_pool2d_ einsum result_type
        is_nonzero _has_compatible_shallow_copy_type requires_grad_ movedim swapaxes diagonal mT numpy_T view_as
        unfold lift pin_memory is_pinned broadcast_tensors promote_types
    """,
}
_KIND = {name: kind for kind, names in _NAMES.items() for name in names.split()}
KINDS = (*(kind for kind in _NAMES if kind != DISPATCH), OTHER, DISPATCH)
"""In the order of tables; what is no operator of PyTorch's is of the last."""


def kind_of(operator: str) -> str:
    """The kind of an operator, by its name in a profile.

    Example:
        >>> from landscape.profiling.kinds import kind_of
        >>> kind_of("aten::addmm"), kind_of("AddmmBackward0"), kind_of("aten::something_new")
        ('matrix products, convolutions', 'Python, autograd and dispatch', 'other operators')
    """
    space, _, name = operator.rpartition("::")
    return _KIND.get(name, OTHER) if space == "aten" else DISPATCH


def product_flops(operator: str, shapes: Sequence[Sequence[int]], values: Sequence[Any]) -> float:
    """Floating-point operations, a multiplication and an addition each counted; 0 of what is no product.

    Args:
        operator: its name in a profile.
        shapes: of its arguments, empty for those that are no tensors.
        values: of those, such as strides; ``None`` for tensors.

    Example:
        >>> from landscape.profiling.kinds import product_flops
        >>> product_flops("aten::addmm", [[5], [2, 3], [3, 5], [], []], [None, None, None, 1, 1])  # 2 · 2 · 3 · 5
        60.0
    """
    name = operator.removeprefix("aten::")
    if name in ("mm", "bmm", "mv"):
        left, right = shapes[0], shapes[1]
    elif name in ("addmm", "baddbmm", "addmv"):
        left, right = shapes[1], shapes[2]
    elif name == "convolution":
        return _convolution(shapes[0], shapes[1], values)
    elif name == "convolution_backward":
        gradient, inputs, weights, transposed, wanted = (*shapes[:3], values[7], values[10])
        positions = inputs if transposed else gradient
        return 2.0 * positions[0] * math.prod(positions[2:]) * math.prod(weights) * sum(map(bool, wanted[:2]))
    else:
        return 0.0
    return 2.0 * math.prod(left) * (right[-1] if len(right) > 1 else 1)


_COUNTED = ("mm", "bmm", "mv", "addmm", "baddbmm", "addmv", "convolution", "convolution_backward")
COUNTED = frozenset(f"aten::{name}" for name in _COUNTED)
"""The operators that :func:`product_flops` knows."""


def _convolution(inputs: Sequence[int], weights: Sequence[int], values: Sequence[Any]) -> float:
    """Each weight is used once at each position of the output (of a transposed one, of the input)."""
    stride, padding, dilation, transposed = values[3:7]
    sizes = inputs[2:]
    if not transposed:
        sizes = [
            (size + 2 * p - d * (kernel - 1) - 1) // s + 1
            for size, kernel, s, p, d in zip(sizes, weights[2:], stride, padding, dilation, strict=True)
        ]
    return 2.0 * inputs[0] * math.prod(sizes) * math.prod(weights)
