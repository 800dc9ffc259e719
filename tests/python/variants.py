"""Attentions behind a query-key norm, and multi-head latent attention, as people write them, for the tests."""

import math

import torch
from torch import nn

import models


class RMSNorm(nn.Module):
    """Llama's, or with `unit_offset` Gemma's."""

    def __init__(self, width, unit_offset=False, bias=False):
        super().__init__()
        self.weight = nn.Parameter((0.0 if unit_offset else 1.0) + 0.3 * torch.randn(width))
        if bias:
            self.bias = nn.Parameter(0.3 * torch.randn(width))
        self.unit_offset, self.eps = unit_offset, 1e-6

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        out = wide * (1.0 + self.weight.float() if self.unit_offset else self.weight.float())
        return (out + self.bias.float() if hasattr(self, "bias") else out).type_as(x)


def layer_norm(width):
    norm = nn.LayerNorm(width)
    nn.init.normal_(norm.weight, 1.0, 0.3)
    nn.init.normal_(norm.bias, 0.0, 0.3)
    return norm


NORMS = {
    "rms": RMSNorm,
    "rms, unit offset": lambda width: RMSNorm(width, unit_offset=True),
    "rms, bias": lambda width: RMSNorm(width, bias=True),
    "rms, unit offset, bias": lambda width: RMSNorm(width, unit_offset=True, bias=True),
    "layer": layer_norm,
}


class NormedAttention(models.Attention):
    """Behind a norm over each head (Qwen3, Gemma 3) or over all (OLMo 2)."""

    def __init__(self, norm="rms", flattened=False, **options):
        super().__init__(**options)
        self.flattened = flattened
        h, g, d = self.num_heads, self.num_kv_heads, self.head_dim
        self.q_norm, self.k_norm = (NORMS[norm](n * d if flattened else d) for n in (h, g))

    def project(self, x):
        batch, tokens, _ = x.shape
        h, g, d = self.num_heads, self.num_kv_heads, self.head_dim
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.flattened:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.reshape(batch, tokens, -1, d).transpose(1, 2) for t in (q, k, v))
        if not self.flattened:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope:
            q, k = models.rotate(q), models.rotate(k)
        return q, k.repeat_interleave(h // g, dim=1), v.repeat_interleave(h // g, dim=1)


class LatentAttention(nn.Module):
    """DeepSeek's MLA, by the names of its Hugging Face model."""

    def __init__(self, width=16, heads=4, latent=True, bias=False, rope_first=False):
        super().__init__()
        self.rope_first = rope_first  # Another layout than DeepSeek's.
        self.num_heads, self.qk_nope_head_dim, self.qk_rope_head_dim, self.v_head_dim = heads, 6, 4, 5
        self.q_head_dim, self.kv_lora_rank = 10, 8
        if latent:
            self.q_a_proj = nn.Linear(width, 12, bias=False)
            self.q_a_layernorm = RMSNorm(12)
            self.q_b_proj = nn.Linear(12, heads * 10, bias=bias)
        else:
            self.q_proj = nn.Linear(width, heads * 10, bias=bias)
        self.latent = latent
        self.kv_a_proj_with_mqa = nn.Linear(width, 8 + 4, bias=False)
        self.kv_a_layernorm = RMSNorm(8)
        self.kv_b_proj = nn.Linear(8, heads * (6 + 5), bias=bias)
        self.o_proj = nn.Linear(heads * 5, width, bias=False)
        self.maxima = None

    def forward(self, x):
        batch, tokens, _ = x.shape
        h = self.num_heads
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) if self.latent else self.q_proj(x)
        q = q.view(batch, tokens, h, 10).transpose(1, 2)
        q_nope, q_rope = (q[..., 4:], q[..., :4]) if self.rope_first else (q[..., :6], q[..., 6:])
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([8, 4], dim=-1)
        k_nope, v = self.kv_b_proj(self.kv_a_layernorm(latent)).view(batch, tokens, h, 11).transpose(1, 2).split(
            [6, 5], dim=-1)
        k_rope = models.rotate(k_rope[:, None]).expand(-1, h, -1, -1)
        q = torch.cat([q_nope, models.rotate(q_rope)], dim=-1)
        k = torch.cat([k_nope, k_rope], dim=-1)
        mask = torch.full((tokens, tokens), -math.inf).triu(1)
        scores = q @ k.transpose(-1, -2) * 10**-0.5 + mask.to(q.dtype)
        self.maxima = scores.detach().float().amax(dim=(0, 2, 3))
        out = scores.softmax(dim=-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(batch, tokens, h * 5))


def model(make_attention, layers=1, gain=4.0, seed=0):
    """A models.Model whose attentions are made by make_attention(), with logits large enough to be clipped."""
    whole = models.Model(layers=layers, seed=seed)
    with torch.no_grad():
        for layer in whole.layers:
            layer.attn = make_attention()
            for name, p in layer.attn.named_parameters():
                if "norm" not in name and name.endswith("weight"):
                    p.mul_(gain)
                elif "norm" not in name:
                    p.normal_()
    return whole
