"""max_logits against the whole score matrix."""

import math

import pytest
import torch

import gyrostat
from gyrostat import logits


def brute(q, k, scale=None, causal=False, mask=None, bias=None):
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, dim=1).transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    if bias is not None:
        scores = scores + bias
    if causal:
        queries, keys = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(queries, keys).tril(keys - queries) == 0, -math.inf)
    return scores.amax(dim=(0, 2, 3))


@pytest.fixture(params=[1 << 22, 1], ids=["whole", "row by row"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(logits, "_SCORES_MAX", request.param)


@pytest.mark.parametrize("kv_heads", [6, 3, 1])
@pytest.mark.parametrize("queries,keys", [(7, 7), (3, 9), (1, 5)])
def test_equals_the_whole_matrix(chunk, kv_heads, queries, keys):
    torch.manual_seed(queries)
    q, k = torch.randn(2, 6, queries, 4), torch.randn(2, kv_heads, keys, 4)
    options = [
        {}, {"scale": 0.3}, {"causal": True},
        {"mask": torch.rand(2, 1, queries, keys) > 0.3},
        {"mask": torch.rand(queries, keys) > 0.3, "causal": True},
        {"mask": torch.where(torch.rand(1, 6, 1, keys) > 0.5, 0.0, -math.inf)},
        {"bias": torch.randn(6, queries, keys)},
        {"bias": torch.randn(1, 6, 1, keys), "causal": True, "scale": 1.7},
    ]
    for option in options:
        torch.testing.assert_close(gyrostat.max_logits(q, k, **option), brute(q, k, **option))


def test_causal_aligns_the_last_query_with_the_last_key():
    q, k = torch.ones(1, 1, 2, 1), torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 4, 1)
    assert gyrostat.max_logits(q, k, causal=True).item() == 4.0
    assert logits._chunked(q, k, None, True, None, None, "first").item() == 2.0


def test_fully_masked_head_is_minus_infinity_and_nan_stays():
    q, k = torch.ones(1, 2, 2, 2), torch.ones(1, 2, 2, 2)
    mask = torch.ones(1, 2, 2, 2, dtype=torch.bool)
    mask[:, 0] = False
    assert gyrostat.max_logits(q, k, mask=mask)[0].item() == -math.inf
    q[0, 1, 0, 0] = math.nan
    assert math.isnan(gyrostat.max_logits(q, k)[1].item())


def test_makes_no_gradient_and_float32_from_narrow_inputs():
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    assert not gyrostat.max_logits(q, q).requires_grad
    narrow = torch.randn(1, 2, 3, 4).bfloat16()
    assert gyrostat.max_logits(narrow, narrow).dtype == torch.float32


@pytest.mark.parametrize("q,k,message", [
    ((2, 3, 4), (1, 2, 3, 4), "wanted"),
    ((1, 2, 3, 4), (1, 2, 3, 5), "differ in batch or head width"),
    ((1, 3, 3, 4), (1, 2, 3, 4), "3 query heads are not a multiple of 2"),
    ((1, 2, 0, 4), (1, 2, 3, 4), "empty"),
])
def test_wrong_shapes_are_refused(q, k, message):
    with pytest.raises(ValueError, match=message):
        gyrostat.max_logits(torch.zeros(q), torch.zeros(k))


def test_mask_that_does_not_broadcast_is_refused():
    with pytest.raises(ValueError, match="does not broadcast"):
        gyrostat.max_logits(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), mask=torch.zeros(5, 3))


def test_lse_bounds_enclose_the_maximum():
    torch.manual_seed(0)
    q, k = 3 * torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 8)
    scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(torch.ones(9, 9).triu(1) > 0, -math.inf)
    lse, exact = scores.logsumexp(dim=-1), scores.amax(dim=(0, 2, 3))
    assert (gyrostat.max_logits_from_lse(lse) >= exact).all()
    assert (gyrostat.max_logits_from_lse(lse, kind="sampled_lower") <= exact).all()
    assert (gyrostat.max_logits_from_lse(lse, kind="sampled_lower", keys=9) <= exact).all()
    with pytest.raises(ValueError, match="kind is 'exact'"):
        gyrostat.max_logits_from_lse(lse, kind="exact")
    with pytest.raises(ValueError, match=r"wanted \[B, H, T\]"):
        gyrostat.max_logits_from_lse(lse[0])
