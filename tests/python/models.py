"""Small transformers in the spellings that people use, for the tests."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def sdpa(q, k, v, causal=True):
    """The scaled-dot-product attention that this torch has."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return F._scaled_dot_product_attention(q, k, v, None, 0.0, False, causal)[0]


def rotate(x):
    """A rotary embedding over the last dimension of [B, H, T, D]."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[2])[:, None] / 10 ** (torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


class Attention(nn.Module):
    """Every variant that the tests need; `kernel`: softmax, f_softmax, module, sdpa, einsum, baddbmm, hidden."""

    def __init__(self, width=16, heads=4, kv_heads=4, fused=False, bias=False, kernel="softmax", rope=False,
                 qk_norm=False, interleaved=False, softcap=0.0):
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = heads, kv_heads, width // heads
        kv_width = kv_heads * self.head_dim
        self.fused, self.kernel, self.rope, self.mixed, self.softcap = fused, kernel, rope, interleaved, softcap
        if interleaved:
            self.query_key_value = nn.Linear(width, width + 2 * kv_width, bias=bias)
        elif fused:
            self.qkv_proj = nn.Linear(width, width + 2 * kv_width, bias=bias)
        else:
            self.q_proj = nn.Linear(width, width, bias=bias)
            self.k_proj = nn.Linear(width, kv_width, bias=bias)
            self.v_proj = nn.Linear(width, kv_width, bias=bias)
        self.o_proj = nn.Linear(width, width, bias=bias)
        self.soft = nn.Softmax(dim=-1)
        if qk_norm:
            self.q_norm, self.k_norm = nn.LayerNorm(self.head_dim), nn.LayerNorm(self.head_dim)
        self.qk_norm = qk_norm
        self.maxima = None  # [heads] of the last forward, made apart from gyrostat.

    def project(self, x):
        batch, tokens, _ = x.shape
        h, g, d = self.num_heads, self.num_kv_heads, self.head_dim
        if self.mixed:
            rows = self.query_key_value(x).view(batch, tokens, g, h // g + 2, d)
            q, k, v = rows[..., :-2, :].reshape(batch, tokens, h, d), rows[..., -2, :], rows[..., -1, :]
        elif self.fused:
            q, k, v = self.qkv_proj(x).split((h * d, g * d, g * d), dim=-1)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = (t.reshape(batch, tokens, -1, d).transpose(1, 2) for t in (q, k, v))
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope:
            q, k = rotate(q), rotate(k)
        return q, k.repeat_interleave(h // g, dim=1), v.repeat_interleave(h // g, dim=1)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.project(x)
        mask = torch.full((tokens, tokens), -math.inf).triu(1)
        scale = self.head_dim**-0.5
        exact = (q.detach() @ k.detach().transpose(-1, -2)).float() * scale + mask
        self.maxima = exact.amax(dim=(0, 2, 3))
        out = getattr(self, "_" + self.kernel)(q, k, v, scale, mask.to(q.dtype))
        return self.o_proj(out.transpose(1, 2).reshape(batch, tokens, width))

    def _softmax(self, q, k, v, scale, mask):
        scores = q @ k.transpose(-1, -2) * scale
        if self.softcap:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        return (scores + mask).softmax(dim=-1) @ v

    def _f_softmax(self, q, k, v, scale, mask):
        return torch.matmul(F.softmax(torch.matmul(q * scale, k.transpose(-1, -2)) + mask, dim=-1), v)

    def _module(self, q, k, v, scale, mask):
        return self.soft(q @ k.transpose(-1, -2) * scale + mask) @ v

    def _sdpa(self, q, k, v, scale, mask):
        return sdpa(q, k, v)

    def _einsum(self, q, k, v, scale, mask):
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale + mask
        return torch.einsum("bhqk,bhkd->bhqd", torch.softmax(scores, -1), v)

    def _baddbmm(self, q, k, v, scale, mask):
        flat = [t.reshape(-1, *t.shape[2:]) for t in (q, k, v)]
        scores = torch.baddbmm(mask.expand(flat[0].shape[0], -1, -1), flat[0], flat[1].transpose(1, 2), alpha=scale)
        return torch.bmm(scores.softmax(dim=-1), flat[2]).view_as(q)

    def _hidden(self, q, k, v, scale, mask):
        # A kernel that nobody can see into: exp and sum instead of softmax.
        weights = torch.exp(q @ k.transpose(-1, -2) * scale + mask)
        return weights / weights.sum(-1, keepdim=True) @ v


class Block(nn.Module):
    def __init__(self, width=16, **attention):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, **attention)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """tokens [B, T] → logits [B, T, 32]."""

    def __init__(self, layers=2, width=16, seed=0, **attention):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(32, width)
        self.layers = nn.ModuleList(Block(width, **attention) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 32, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def maxima(self):
        """[layers, heads] of the last forward, made apart from gyrostat."""
        return torch.stack([layer.attn.maxima for layer in self.layers])


def batch(seed=0, batch_size=2, tokens=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 32, (batch_size, tokens), generator=generator)


def loss_of(model, tokens):
    logits = model(tokens)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
