"""Causal attention, multiplied out or by torch's fused kernel."""

import pytest
import torch
import torch.nn.functional as F

from acf.zoo.networks import attention
from acf.zoo.networks.attention import LONGEST_SCORES, causal_attention


def operands(tokens: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Query, key and value of 2 examples and 3 heads of 16."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, tokens, 16, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


def test_products_and_the_fused_kernel_agree_in_value_and_gradients() -> None:
    ours, torchs = operands(24, torch.bfloat16), operands(24, torch.bfloat16)
    outputs = [causal_attention(*ours), F.scaled_dot_product_attention(*torchs, is_causal=True)]
    for output in outputs:
        output.float().square().sum().backward()
    one_rounding = 2 * torch.finfo(torch.bfloat16).eps
    torch.testing.assert_close(outputs[0], outputs[1], rtol=one_rounding, atol=one_rounding)
    for mine, theirs in zip(ours, torchs, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=4 * one_rounding, atol=4 * one_rounding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_token_sees_a_later_one(dtype: torch.dtype) -> None:
    query, key, value = (operand.detach() for operand in operands(8, dtype))
    before = causal_attention(query, key, value)
    key[:, :, 5:], value[:, :, 5:] = 7.0, 9.0
    torch.testing.assert_close(causal_attention(query, key, value)[:, :, :5], before[:, :, :5])


@pytest.mark.parametrize(
    ("tokens", "dtype", "is_fused"),
    [(8, torch.float32, True), (8, torch.bfloat16, False), (LONGEST_SCORES + 1, torch.bfloat16, True)],
)
def test_short_contexts_in_bfloat16_are_multiplied_out(
    tokens: int, dtype: torch.dtype, is_fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(
        attention.F, "scaled_dot_product_attention", lambda *args, **kw: calls.append(1) or fused(*args, **kw)
    )
    causal_attention(*operands(tokens, dtype))
    assert bool(calls) == is_fused
