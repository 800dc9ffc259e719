"""Small decoders, one for each entry of the architecture catalogue, that show their residual stream and gradients.

Weights are Xavier normal, the feed-forward part is as wide as the model, norm gains are 1: the setting of Xiong et al.
2020 (arXiv 2002.04745), with an output projection. Forward and backward passes are real; only the size is small.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 64
HEADS = 4
VOCAB = 64


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def _linear():
    layer = nn.Linear(WIDTH, WIDTH, bias=False)
    nn.init.xavier_normal_(layer.weight)
    return layer


class Block(nn.Module):
    """One layer of the entry `name` (of model/architecture.h); `depth` counts from 1."""

    def __init__(self, name, depth, layers, norm):
        super().__init__()
        self.name, self.depth, self.layers = name, depth, layers
        self.q, self.k, self.v, self.o, self.w1, self.w2 = (_linear() for _ in range(6))
        self.norms = nn.ModuleList(norm(WIDTH) for _ in range(4))
        self.alpha = (2 * layers) ** 0.25 if name == "deepnorm" else 2.0 * layers if name == "keel" else 1.0
        with torch.no_grad():
            if name == "deepnorm":
                for part in (self.v, self.o, self.w1, self.w2):
                    part.weight *= (8 * layers) ** -0.25
            if name == "gpt2":
                for part in (self.o, self.w2):
                    part.weight /= math.sqrt(2 * layers)

    def attend(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.name == "hybrid":
            q, k, v = self.norms[0](q), self.norms[1](k), self.norms[2](v)
        if self.name == "reordered":  # OLMo 2: QK-norm over all heads together.
            q, k = self.norms[2](q), self.norms[3](k)
        q, k, v = (t.view(batch, tokens, HEADS, -1).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), -math.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, WIDTH))

    def feed(self, x):
        hidden = F.relu(self.w1(x))
        return self.w2(self.norms[3](hidden) if self.name == "normformer" else hidden)

    def forward(self, x, dual):
        """Returns the stream behind the layer, ResiDual's second stream, and the sum before the closing norm."""
        n1, n2 = self.norms[0], self.norms[1]
        name = self.name
        if name == "mix":
            name = "post" if self.depth <= max(1, self.layers // 4) else "pre"
        if name in ("post", "deepnorm", "residual_dual"):
            branch = self.attend(x)
            middle = n1(self.alpha * x + branch)
            last = self.feed(middle)
            total = self.alpha * middle + last
            return n2(total), dual + branch + last, total
        if name == "keel":
            middle = n1(self.alpha * x + self.attend(self.norms[2](x)))
            total = self.alpha * middle + self.feed(self.norms[3](middle))
            return n2(total), dual, total
        if name == "hybrid":
            middle = x + self.attend(x)
            total = middle + self.feed(middle)
            return self.norms[3](total), dual, total
        if name == "peri":
            x = x + self.norms[2](self.attend(n1(x)))
            return x + self.norms[3](self.feed(n2(x))), dual, None
        if name == "reordered":
            x = x + n1(self.attend(x))
            return x + n2(self.feed(x)), dual, None
        if name == "normformer":
            x = x + self.norms[2](self.attend(n1(x)))
            return x + self.feed(n2(x)), dual, None
        scale = 1 / math.sqrt(self.depth) if name == "layernorm_scaling" else 1.0
        x = x + self.attend(n1(x) * scale)
        return x + self.feed(n2(x) * scale), dual, None


class Decoder(nn.Module):
    def __init__(self, name, layers, norm=nn.LayerNorm):
        super().__init__()
        self.name = name
        self.token = nn.Embedding(VOCAB, WIDTH)
        self.place = nn.Embedding(256, WIDTH)
        with torch.no_grad():  # Together of unit variance.
            self.token.weight *= math.sqrt(0.5)
            self.place.weight *= math.sqrt(0.5)
        self.blocks = nn.ModuleList(Block(name, depth + 1, layers, norm) for depth in range(layers))
        self.closing = norm(WIDTH)
        self.output = nn.Linear(WIDTH, VOCAB, bias=False)
        nn.init.xavier_normal_(self.output.weight)
        self.stream, self.sums = [], []

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        dual = x
        self.stream, self.sums = [x.detach()], []
        for block in self.blocks:
            x, dual, total = block(x, dual)
            self.stream.append(x.detach())
            if total is not None:
                self.sums.append(total.detach() / block.alpha)
        if self.name == "residual_dual":
            x = x + self.closing(dual)
        elif self.name not in ("post", "deepnorm", "keel", "hybrid"):
            x = self.closing(x)
        return self.output(x)

    def hidden_ms(self):
        """Mean square of the stream at boundaries 0..L of the last forward."""
        return [float(x.square().mean()) for x in self.stream]

    def ln_input_ms(self):
        """Mean square of the sums before the closing norms, in units of alpha squared; empty without such norms."""
        return [float(x.square().mean()) for x in self.sums]

    def gradients(self):
        """L2 of the gradient of each block's W_2."""
        return [float(block.w2.weight.grad.norm()) for block in self.blocks]
