"""A training loop of several ranks with gyrostat in it: data-parallel, on gloo, with all that an order may touch.

    torchrun --nproc_per_node 2 ranks.py [STEPS]      needs no daemon; with one, set GYROSTAT_ADDRESS=host:port

Every rank calls watch(), step() and close() at the same places. Only rank 0 needs the address.
"""

import logging
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import gyrostat
import gyrostat.alpha

WIDTH, HEADS, LAYERS, WORDS, CONTEXT = 32, 4, 2, 64, 16


class Block(nn.Module):
    """Post-norm: LN(alpha x + f(x)), twice. An order may move alpha, so the forward reads it from a tensor."""

    def __init__(self):
        super().__init__()
        self.num_heads = HEADS
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.register_buffer("alpha", torch.tensor(1.0))

    def attend(self, x):
        q, k, v = (p(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        scores = scores + torch.full(scores.shape[-2:], float("-inf")).triu(1)
        return self.o_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = self.norm1(self.alpha * x + self.attend(x))
        return self.norm2(self.alpha * x + self.down(F.relu(self.up(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train(steps):
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.02, total_iters=50)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps - 50))
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [50])
    set_alpha, get_alpha = gyrostat.alpha.bound([layer.alpha for layer in model.module.layers])
    data = torch.Generator().manual_seed(dist.get_rank())
    with gyrostat.watch(model, optimizer, scheduler, set_alpha=set_alpha, get_alpha=get_alpha,
                        allow=("qk_clip", "warmup_extension", "deepnorm_alpha", "lr_scale", "grad_clip", "skip_step",
                               "checkpoint", "halt")) as mon:
        for step in range(steps):
            first = torch.randint(0, WORDS, (8, 1), generator=data)
            tokens = (first + 5 * torch.arange(CONTEXT + 1)) % WORDS  # Each row counts in fives from somewhere.
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            mon.step(loss, step=step, tokens=tokens.numel())
            asked = {request.kind for request in mon.requests()}  # The same on every rank.
            if asked & {"checkpoint", "halt"} and dist.get_rank() == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                            "scheduler": scheduler.state_dict(), "gyrostat": mon.state_dict()}, "checkpoint.pt")
            if "halt" in asked:
                break
        print(f"rank={dist.get_rank()} steps={step + 1} loss={float(loss):.3f} gyrostat={mon.status}")


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    dist.init_process_group("gloo")
    train(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
