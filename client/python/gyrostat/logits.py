"""The largest attention logit per head, without the score matrix.

Scores are made for a block of queries at a time, so that memory is bounded by `_SCORES_MAX` however long the context.
"""

import math

import torch

_SCORES_MAX = 1 << 22  # Scores held at once: 16 MiB in float32, enough to keep a GPU busy.


def max_logits(q, k, scale=None, causal=False, mask=None, bias=None):
    """Largest softmax input per query head: scale * q·k + bias where the mask allows it.

    q: [B, H, Tq, D]; k: [B, Hkv, Tk, D] with Hkv dividing H (query head h uses key head h // (H / Hkv)).
    scale: None means D^-0.5.
    causal: query i sees key j when j <= i + Tk - Tq, so the last query sees the last key.
    mask: broadcastable to [B, H, Tq, Tk]; bool, True where attention is allowed, or floating, added.
    bias: floating, broadcastable likewise, added (ALiBi, relative positions).
    → [H] float32 on q's device; -inf for a head of which everything is masked. NaN stays NaN.

    Products are made in q's own type, as attention does. Raises ValueError for shapes that do not fit. Pure: safe
    from any thread, makes no gradient. Formula: Kimi K2 (arXiv 2507.20534), section 2.1.
    """
    return _chunked(q, k, scale, causal, mask, bias, "last")


def _chunked(q, k, scale, causal, mask, bias, align):
    """`align`: "last", or "first" as torch's scaled_dot_product_attention (query i sees keys j <= i)."""
    _check(q, k)
    batch, heads, queries, width = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    scale = width**-0.5 if scale is None else scale
    with torch.no_grad():
        k_t = k.detach().transpose(-1, -2).unsqueeze(2)  # [B, Hkv, 1, D, Tk]
        grouped = q.detach().reshape(batch, kv_heads, heads // kv_heads, queries, width)
        terms = [_whole(t, batch, heads, queries, keys) for t in (mask, bias) if t is not None]
        step = max(1, _SCORES_MAX // max(1, batch * heads * keys))
        best = torch.full((heads,), -math.inf, dtype=torch.float32, device=q.device)
        for first in range(0, queries, step):
            part = slice(first, min(first + step, queries))
            scores = torch.matmul(grouped[:, :, :, part], k_t).flatten(1, 2).float() * scale
            for term in terms:
                rows = term[:, :, part] if term.shape[2] > 1 else term
                scores = scores.masked_fill(~rows, -math.inf) if rows.dtype == torch.bool else scores + rows
            if causal:
                offset = keys - queries if align == "last" else 0
                last_seen = torch.arange(part.start, part.stop, device=q.device)[:, None] + offset
                scores = scores.masked_fill(torch.arange(keys, device=q.device) > last_seen, -math.inf)
            best = torch.maximum(best, scores.amax(dim=(0, 2, 3)))
        return best


def _check(q, k):
    if q.dim() != 4 or k.dim() != 4:
        raise ValueError(f"q is {list(q.shape)} and k is {list(k.shape)}, wanted [B, H, Tq, D] and [B, Hkv, Tk, D]")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q {list(q.shape)} and k {list(k.shape)} differ in batch or head width")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} query heads are not a multiple of {k.shape[1]} key heads")
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"q {list(q.shape)} or k {list(k.shape)} is empty")


def _whole(term, batch, heads, queries, keys):
    """`term` with four dimensions, each 1 or whole, so that its query rows can be sliced."""
    shape = (1,) * (4 - term.dim()) + tuple(term.shape)
    if len(shape) != 4 or any(have not in (1, want) for have, want in zip(shape, (batch, heads, queries, keys))):
        raise ValueError(f"a mask or bias of {list(term.shape)} does not broadcast to "
                         f"{[batch, heads, queries, keys]}")
    return term.detach().reshape(shape)


def max_logits_from_lse(lse, kind="lse_upper", keys=None):
    """A bound on the largest softmax input per head, from the log-sum-exp that fused kernels return.

    lse: [B, H, T], natural log, softmax scale included.
    kind: "lse_upper", max over rows of LSE, never below the truth and tight where attention saturates; may drive a
    clip.
          "sampled_lower", max over rows of LSE - ln(n), never above it; for alarms only.
    keys: keys that a row sees, for the lower bound; None means causal, i + 1 for row i.
    → [H] float32. From LSE - ln n <= max <= LSE. Raises ValueError for another shape or kind.
    """
    if lse.dim() != 3:
        raise ValueError(f"lse is {list(lse.shape)}, wanted [B, H, T]")
    if kind not in ("lse_upper", "sampled_lower"):
        raise ValueError(f"kind is {kind!r}, wanted 'lse_upper' or 'sampled_lower'")
    with torch.no_grad():
        rows = lse.detach().float()
        if kind == "sampled_lower":
            if keys is None:
                rows = rows - torch.arange(1, rows.shape[2] + 1, device=rows.device).log()
            else:
                rows = rows - math.log(keys)
        return rows.amax(dim=(0, 2))
