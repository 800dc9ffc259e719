"""A small training loop under a monitor, with everything in it that orders of other kinds than clips touch."""

import torch
from torch import nn
from torch.nn import functional as F

import gyrostat
import pacing
from gyrostat.alpha import Branch, bound

WIDTH, LAYERS, PEAK, WARMUP, TOTAL = 8, 2, 0.1, 20, 200


class Block(nn.Module):
    """LN(alpha x + MLP(x)), with attention before."""

    def __init__(self):
        super().__init__()
        self.num_heads = 2
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.register_buffer("alpha", torch.tensor(1.0))

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (2, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.transpose(-1, -2) / 2
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        return F.layer_norm(self.alpha * x + self.o_proj(mixed), (WIDTH,))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Seen(torch.optim.SGD):
    """Notes the rate of each step that is not skipped."""

    def __init__(self, params, lr):
        super().__init__(params, lr=lr)
        self.rates = []

    def step(self, closure=None):
        self.rates.append(self.param_groups[0]["lr"])
        return super().step(closure)


class Loop:
    """`watch` options go to gyrostat.watch. after: called between backward and optimizer.step."""

    def __init__(self, seed=0, clip=1e9, after=lambda model: None, weights=None, **watch):
        self.model = Model()
        if weights is not None:
            self.model.load_state_dict(weights)
        self.optimizer = Seen(self.model.parameters(), PEAK)
        self.scheduler = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [
            torch.optim.lr_scheduler.LinearLR(self.optimizer, start_factor=1 / WARMUP, total_iters=WARMUP),
            torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, TOTAL - WARMUP)], [WARMUP])
        self.seed, self.clip, self.after = seed, clip, after
        self.steps = 0
        self.norms = []  # Of the gradients, as the optimizer got them.
        self.bases = []
        set_alpha, get_alpha = bound([layer.alpha for layer in self.model.layers])
        branches = {i: Branch([(layer.v_proj, "weight"), (layer.o_proj, "weight")], [])
                    for i, layer in enumerate(self.model.layers)}
        self.mon = gyrostat.watch(self.model, self.optimizer, self.scheduler, run="loop", set_alpha=set_alpha,
                                  get_alpha=get_alpha, branches=branches, **watch)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.mon.close()

    def step(self):
        torch.manual_seed(1000 * self.seed + self.steps)
        x = torch.randn(2, 3, WIDTH)
        self.optimizer.zero_grad()
        loss = (self.model(x) * torch.arange(WIDTH)).square().mean()
        loss.backward()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.after(self.model)
        self.norms.append(float(torch.cat([p.grad.flatten() for p in self.model.parameters()]).norm()))
        self.bases.append(self.optimizer.param_groups[0]["lr"])
        self.optimizer.step()
        self.scheduler.step()
        self.mon.step(loss)
        self.steps += 1

    def alphas(self):
        return [float(layer.alpha) for layer in self.model.layers]

    def run_until(self, condition, steps=400):
        """Each step waits until its report was taken: a daemon that gets no core does not let an order expire."""
        for _ in range(steps):
            if condition():
                return
            self.step()
            pacing.wait_for_answer(self.mon)
        raise AssertionError(f"not within {steps} steps")
