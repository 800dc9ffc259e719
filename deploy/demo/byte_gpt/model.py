"""A pre-LN byte-level GPT, written the way most people write their first one."""

import math

import torch
from torch import nn
from torch.nn import functional as F

_VOCABULARY = 256  # Bytes.


class Attention(nn.Module):
    """Causal self-attention; grouped-query when kv_heads < heads; one fused projection or three."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_dim = config.width // config.heads
        self.fused = config.fused_qkv
        kv_width = self.kv_heads * self.head_dim
        if self.fused:
            self.qkv_proj = nn.Linear(config.width, config.width + 2 * kv_width, bias=config.bias)
        else:
            self.q_proj = nn.Linear(config.width, config.width, bias=config.bias)
            self.k_proj = nn.Linear(config.width, kv_width, bias=config.bias)
            self.v_proj = nn.Linear(config.width, kv_width, bias=config.bias)
        self.o_proj = nn.Linear(config.width, config.width, bias=config.bias)
        mask = torch.full((config.context, config.context), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        self.record = False
        self.logit_max = None  # [heads], of the last forward, where `record` is set.

    def forward(self, x):
        batch, tokens, width = x.shape
        if self.fused:
            kv_width = self.kv_heads * self.head_dim
            q, k, v = self.qkv_proj(x).split((width, kv_width, kv_width), dim=-1)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q = q.view(batch, tokens, self.heads, self.head_dim).transpose(1, 2)
        k = k.view(batch, tokens, self.kv_heads, self.head_dim).transpose(1, 2)
        v = v.view(batch, tokens, self.kv_heads, self.head_dim).transpose(1, 2)
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim) + self.mask[:tokens, :tokens].to(q.dtype)
        if self.record:
            self.logit_max = scores.detach().amax(dim=(0, 2, 3)).float()
        out = scores.softmax(dim=-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """int64 bytes [batch, tokens] → logits [batch, tokens, 256]."""

    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, _VOCABULARY, bias=False)
        for embedding in (self.embedding, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def record_logits(self, on):
        """Whether each attention keeps the largest softmax input of its last forward, apart from any monitor."""
        for block in self.blocks:
            block.attention.record = on

    def logit_max(self):
        """[layers, heads], of the last forward."""
        return torch.stack([block.attention.logit_max for block in self.blocks])
