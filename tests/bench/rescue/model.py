"""A byte-level transformer cut over ranks as Megatron does: heads and MLP columns over TP, layers over PP.

Weights are drawn from the seed and the layer's number and cut afterwards, so every layout trains one model.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from shards import from_shards, to_shards

_VOCABULARY = 256  # Bytes.


def _cut(rows, columns, generator, keep, dim):
    """A Linear without bias: drawn whole, [rows, columns], then of dimension `dim` only the slice `keep`."""
    bound = 1.0 / math.sqrt(columns)
    whole = torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)
    part = whole[keep] if dim == 0 else whole[:, keep]
    linear = nn.Linear(part.shape[1], part.shape[0], bias=False)
    linear.weight = nn.Parameter(part.clone())
    return linear


class Attention(nn.Module):
    """Causal self-attention over the heads of this rank."""

    def __init__(self, config, layout, generator):
        super().__init__()
        self.num_heads = config.heads // layout.shape.tp
        self.head_dim = config.width // config.heads
        width, part = config.width, self.num_heads * self.head_dim
        mine = slice(layout.tp * part, (layout.tp + 1) * part)
        self.q_proj = _cut(width, width, generator, mine, 0)
        self.k_proj = _cut(width, width, generator, mine, 0)
        self.v_proj = _cut(width, width, generator, mine, 0)
        self.o_proj = _cut(width, width, generator, mine, 1)
        self.group = layout.tp_group
        mask = torch.full((config.context, config.context), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        self.logit_max = None  # [heads of this rank], of the last forward.

    def forward(self, x):
        batch, tokens, _ = x.shape
        x = to_shards(x, self.group)
        q, k, v = (p(x).view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim) + self.mask[:tokens, :tokens]
        self.logit_max = scores.detach().amax(dim=(0, 2, 3))
        out = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, tokens, -1)
        return from_shards(self.o_proj(out), self.group)


class MLP(nn.Module):
    def __init__(self, config, layout, generator):
        super().__init__()
        part = 4 * config.width // layout.shape.tp
        mine = slice(layout.tp * part, (layout.tp + 1) * part)
        self.up = _cut(4 * config.width, config.width, generator, mine, 0)
        self.down = _cut(config.width, 4 * config.width, generator, mine, 1)
        self.group = layout.tp_group

    def forward(self, x):
        return from_shards(self.down(F.relu(self.up(to_shards(x, self.group)))), self.group)


class Block(nn.Module):
    """Pre-norm, x + f(norm(x)), or post-norm with DeepNorm's constant, norm(alpha x + f(x)), twice."""

    def __init__(self, config, layout, layer):
        super().__init__()
        generator = torch.Generator().manual_seed(1000 * config.seed + layer + 1)
        self.norm_first = config.norm == "pre"
        self.attn = Attention(config, layout, generator)
        self.mlp = MLP(config, layout, generator)
        self.norm1 = nn.LayerNorm(config.width)
        self.norm2 = nn.LayerNorm(config.width)
        self.register_buffer("alpha", torch.tensor(1.0))  # Read at each forward: an order may change it.

    def forward(self, x):
        if self.norm_first:
            x = x + self.attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(self.alpha * x + self.attn(x))
        return self.norm2(self.alpha * x + self.mlp(x))


class Stage(nn.Module):
    """The layers of this rank's pipeline stage, with the embedding on the first and the output head on the last.

    forward: int64 bytes [batch, tokens] or hidden states [batch, tokens, width] → hidden states, or logits on the last.
    """

    def __init__(self, config, layout):
        super().__init__()
        self.first, count = layout.share(config.layers)
        generator = torch.Generator().manual_seed(1000 * config.seed)
        embeddings = torch.randn(_VOCABULARY + config.context, config.width, generator=generator)
        self.embedding = self.positions = self.norm = self.head = None
        if layout.first_stage:
            self.embedding = nn.Embedding(_VOCABULARY, config.width)
            self.positions = nn.Embedding(config.context, config.width)
            self.embedding.weight = nn.Parameter(config.embedding_std * embeddings[:_VOCABULARY])
            self.positions.weight = nn.Parameter(config.embedding_std * embeddings[_VOCABULARY:])
        self.layers = nn.ModuleList(Block(config, layout, layer) for layer in range(self.first, self.first + count))
        if layout.last_stage:
            self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else None
            self.head = _cut(_VOCABULARY, config.width, generator, slice(None), 0)

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x) + self.positions.weight[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        if self.norm is not None:
            x = self.norm(x)
        return x if self.head is None else self.head(x)

    def logit_max(self):
        """The largest softmax input of the last forward, of the heads and layers of this rank."""
        return max(float(layer.attn.logit_max.max()) for layer in self.layers)
