"""Multi-head attention whose projections are layers, and so can be sparse: the successor of `nn.MultiheadAttention`."""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acf.errors import SparsityError, TopologyError
from acf.nn.fx_leaf import FxLeaf
from acf.nn.sparse_layer import SparseLayer

PROJECTIONS = ("q_proj", "k_proj", "v_proj")


class BlockSparseMultiheadAttention(FxLeaf):
    """`torch.nn.MultiheadAttention` with three input projections and an output projection that are linear layers.

    `acf.sparsify_` puts it in the place of torch's module and makes the projections sparse. It is called and computes
    as torch's does, except that it takes no nested tensors. ``in_proj_weight [3 * embed_dim, embed_dim]`` is split
    into ``q_proj``, ``k_proj`` and ``v_proj``, each ``[embed_dim, inputs]``: cross-attention needs them apart, and
    each has a density of its own. The ``state_dict`` has ``q_proj.weight``, ``q_proj.bias`` and, where a projection is
    sparse, ``q_proj.block_rows`` and ``q_proj.block_cols``; likewise for the others and ``out_proj``.
    """

    # Torch's transformer layers ask for these before they take their fused path, which would read packed weights.
    _qkv_same_embed_dim = False
    in_proj_weight = None
    in_proj_bias = None

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None

    def __init__(self, dense: nn.MultiheadAttention) -> None:
        super().__init__()
        self.embed_dim, self.kdim, self.vdim = dense.embed_dim, dense.kdim, dense.vdim
        self.num_heads, self.head_dim = dense.num_heads, dense.head_dim
        self.dropout, self.batch_first, self.add_zero_attn = dense.dropout, dense.batch_first, dense.add_zero_attn
        for name, weight, bias in zip(PROJECTIONS, _input_weights(dense), _input_biases(dense), strict=True):
            self.add_module(name, _linear(weight, bias))
        out_weight, out_bias = dense.out_proj._parameters["weight"], dense.out_proj._parameters["bias"]
        self.out_proj = _linear(cast(nn.Parameter, out_weight), out_bias)
        self.register_parameter("bias_k", cast(nn.Parameter | None, dense.bias_k))
        self.register_parameter("bias_v", cast(nn.Parameter | None, dense.bias_v))
        self.train(dense.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output ``[batch, target, embed_dim]`` and the attention weights; every argument as in torch's module.

        Without ``batch_first`` the first two dimensions are the other way round; inputs without a batch have none.
        """
        self._check_call(query, is_causal, attn_mask)
        batched, sequence_first = query.dim() == 3, query.dim() == 3 and not self.batch_first
        if not batched:
            query, key, value = (each.unsqueeze(0) for each in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        queries, keys, values = self._project(query, key, value, sequence_first)
        causal = is_causal and key_padding_mask is None and not need_weights  # torch then trusts the hint
        mask = None if causal else self._merged_mask(attn_mask, key_padding_mask, queries, keys.shape[1])
        q, k, v = (self._split_heads(each) for each in (queries, *self._extended(keys, values)))
        weights: Tensor | None = None
        if need_weights:
            context, weights = self._weigh(q, k, v, mask)
        else:
            dropout = self.dropout if self.training else 0.0
            context = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        merged = context.transpose(1, 2).flatten(2)
        output: Tensor = self.out_proj(merged.transpose(0, 1) if sequence_first else merged)
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output, weights

    def to_dense(self) -> nn.MultiheadAttention:
        """A plain `torch.nn.MultiheadAttention` that computes the same; absent blocks become zeros."""
        has_bias, projections = self.out_proj.bias is not None, [getattr(self, name) for name in PROJECTIONS]
        dense = nn.MultiheadAttention(
            *(self.embed_dim, self.num_heads, self.dropout),
            *(has_bias, self.bias_k is not None, self.add_zero_attn),
            *(self.kdim, self.vdim, self.batch_first),
            device="meta",
        )
        weights = [_weight_of(projection) for projection in projections]
        if dense._qkv_same_embed_dim:
            dense.in_proj_weight = _joined(weights)
        else:
            dense.q_proj_weight, dense.k_proj_weight, dense.v_proj_weight = weights
        if has_bias:
            dense.in_proj_bias = _joined([cast(nn.Parameter, projection.bias) for projection in projections])
        dense.out_proj.weight = _weight_of(self.out_proj)
        dense.out_proj.register_parameter("bias", self.out_proj.bias)
        dense.bias_k, dense.bias_v = self.bias_k, self.bias_v
        return dense.train(self.training)

    def check_state(self, state_dict: Mapping[str, Any], prefix: str) -> None:
        """Refuse a checkpoint of torch's own module, whose projections are packed."""
        packed = [name for name in ("in_proj_weight", "q_proj_weight", "in_proj_bias") if prefix + name in state_dict]
        if packed:
            raise TopologyError(
                f"{prefix}{packed[0]} in the checkpoint is of dense attention, and this attention is sparse; load it "
                "into the dense model and call sparsify_ afterwards, or leave attention out with filter_fn"
            )

    def extra_repr(self) -> str:
        """Sizes, for ``print(model)``."""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"

    def _check_call(self, query: Tensor, is_causal: bool, attn_mask: Tensor | None) -> None:
        if query.is_nested:
            raise SparsityError(
                "sparse attention takes no nested tensors; pass a padded tensor and a key_padding_mask, and make "
                "nn.TransformerEncoder with enable_nested_tensor=False"
            )
        if query.dim() not in (2, 3):
            raise SparsityError(
                f"attention got a query of shape {list(query.shape)}; pass [batch, length, {self.embed_dim}], or "
                f"[length, {self.embed_dim}] without a batch"
            )
        if is_causal and attn_mask is None:
            raise SparsityError("is_causal says that attn_mask is causal, and there is none; pass the mask too")

    def _project(self, query: Tensor, key: Tensor, value: Tensor, sequence_first: bool) -> tuple[Tensor, ...]:
        """The three projections, ``[batch, length, embed_dim]`` each."""
        projected = (self.q_proj(query), self.k_proj(key), self.v_proj(value))
        return tuple(each.transpose(0, 1) for each in projected) if sequence_first else projected

    def _extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values with ``bias_k`` and ``bias_v``, and with zeros, after them where the module has these."""
        batch = keys.shape[0]
        if self.bias_k is not None and self.bias_v is not None:
            keys = torch.cat([keys, self.bias_k.expand(batch, -1, -1)], dim=1)
            values = torch.cat([values, self.bias_v.expand(batch, -1, -1)], dim=1)
        if self.add_zero_attn:
            zeros = keys.new_zeros(batch, 1, self.embed_dim)
            keys, values = torch.cat([keys, zeros], dim=1), torch.cat([values, zeros.to(values.dtype)], dim=1)
        return keys, values

    def _merged_mask(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, queries: Tensor, source: int
    ) -> Tensor | None:
        """What is added to the scores, broadcast to ``[batch, heads, target, source]``; None for nothing."""
        (batch, target), heads = queries.shape[:2], self.num_heads
        merged: Tensor | None = None
        if attn_mask is not None:
            _check_mask("attn_mask", attn_mask, ((target, source), (batch * heads, target, source)))
            merged = _additive(attn_mask, queries.dtype)
            merged = merged if merged.dim() == 2 else merged.reshape(batch, heads, target, source)
        if key_padding_mask is not None:
            _check_mask("key_padding_mask", key_padding_mask, ((batch, source),))
            padding = _additive(key_padding_mask, queries.dtype)[:, None, None, :]
            merged = padding if merged is None else merged + padding
        more = (self.bias_k is not None) + self.add_zero_attn
        return F.pad(merged, (0, more)) if merged is not None and more else merged

    def _split_heads(self, tokens: Tensor) -> Tensor:
        """``[batch, length, embed_dim]`` as ``[batch, heads, length, head_dim]``."""
        return tokens.reshape(*tokens.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def _weigh(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attention with its weights ``[batch, heads, target, source]``, which the fused function does not give."""
        scores = torch.matmul(queries * math.sqrt(1.0 / self.head_dim), keys.transpose(-2, -1))
        weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
        weights = F.dropout(weights, self.dropout, self.training)
        return torch.matmul(weights, values), weights


def _check_mask(name: str, mask: Tensor, shapes: tuple[tuple[int, ...], ...]) -> None:
    if tuple(mask.shape) not in shapes or not (mask.dtype is torch.bool or mask.is_floating_point()):
        allowed = " or ".join(str(list(shape)) for shape in shapes)
        raise SparsityError(f"{name} is {list(mask.shape)} of {mask.dtype}; pass bool or floating point of {allowed}")


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask, True where attention is forbidden, as 0 and minus infinity; others as they are."""
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


def _input_weights(dense: nn.MultiheadAttention) -> list[nn.Parameter]:
    if dense.in_proj_weight is None:
        return [getattr(dense, f"{name}_weight") for name in PROJECTIONS]
    return _parts(dense.in_proj_weight)


def _input_biases(dense: nn.MultiheadAttention) -> list[nn.Parameter] | list[None]:
    return [None] * len(PROJECTIONS) if dense.in_proj_bias is None else _parts(dense.in_proj_bias)


def _parts(packed: nn.Parameter) -> list[nn.Parameter]:
    """The packed parameter's three parts as parameters of their own."""
    return [nn.Parameter(part.clone(), packed.requires_grad) for part in packed.detach().chunk(len(PROJECTIONS))]


def _joined(parts: list[nn.Parameter]) -> nn.Parameter:
    joined = torch.cat([part.detach() for part in parts])
    return nn.Parameter(joined, any(part.requires_grad for part in parts))


def _linear(weight: nn.Parameter, bias: nn.Parameter | None) -> nn.Linear:
    outputs, inputs = weight.shape
    linear = nn.Linear(inputs, outputs, bias=False, device="meta")
    linear.weight = weight
    linear.register_parameter("bias", bias)
    return linear


def _weight_of(projection: nn.Module) -> nn.Parameter:
    weight = cast(nn.Parameter, projection.weight)
    if isinstance(projection, SparseLayer):
        return nn.Parameter(projection.forward_matrix(), weight.requires_grad)
    return weight
