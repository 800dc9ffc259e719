"""One rank's training loop: real text, real collectives, one boundary of gyrostat's a step."""

import dataclasses
import pathlib

import torch
import torch.distributed as dist
from torch.nn import functional as F

from model import Stage

_LICENSES = pathlib.Path("/usr/share/common-licenses")


@dataclasses.dataclass(frozen=True)
class Config:
    """What is trained. Equal seeds begin from the same weights and see the same text, in any layout."""

    seed: int = 0
    steps: int = 300
    planned: int = 0  # Steps of the run as it is declared, where it is stopped before; 0: `steps`.
    norm: str = "pre"  # pre or post.
    layers: int = 2
    width: int = 32
    heads: int = 4
    context: int = 32  # Bytes a sequence.
    batch: int = 8  # Sequences a step, over all replicas.
    lr: float = 0.04
    warmup: int = 50  # Steps of linear warm-up; constant after.
    embedding_std: float = 0.02
    beta2: float = 0.98


def read_text():
    """The licences that every Debian machine has, each once, as one uint8 tensor."""
    files = sorted(p for p in _LICENSES.iterdir() if p.is_file() and not p.is_symlink())
    return torch.frombuffer(bytearray(b"\n".join(p.read_bytes() for p in files)), dtype=torch.uint8)


def unigram_entropy(text):
    """Nats per byte of a model that knows byte frequencies only: what a collapsed run stands at."""
    share = torch.bincount(text.long(), minlength=256).double() / len(text)
    share = share[share > 0]
    return float(-(share * share.log()).sum())


class Job:
    """Model, optimizer, schedule and data of one rank. step() is one optimizer step of the whole job."""

    def __init__(self, config, layout, text):
        self.config, self.layout, self._text = config, layout, text
        self.model = Stage(config, layout)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr, betas=(0.9, config.beta2),
                                           weight_decay=0.0)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / max(1, config.warmup)))
        self._generator = torch.Generator().manual_seed(config.seed)
        self._window = torch.arange(config.context + 1)
        self.steps_done = 0

    def step(self):
        """Loss of the whole batch, nats per byte, equal on all ranks."""
        inputs, targets = self._batch()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._pass(inputs, targets)
        loss = self._reduce(loss)
        self.optimizer.step()
        self.scheduler.step()
        self.steps_done += 1
        return loss

    def _batch(self):
        """This replica's share of a fresh batch."""
        config, layout = self.config, self.layout
        starts = torch.randint(len(self._text) - config.context, (config.batch, 1), generator=self._generator)
        mine = config.batch // layout.shape.dp
        window = self._text[starts[layout.dp * mine:(layout.dp + 1) * mine] + self._window].long()
        return window[:, :-1], window[:, 1:]

    def _pass(self, inputs, targets):
        """Forward and backward through the pipeline. The loss comes back with the gradient, so each stage has it."""
        layout = self.layout
        if not layout.first_stage:
            inputs = torch.empty(*inputs.shape, self.config.width)
            dist.recv(inputs, layout.neighbour(-1))
            inputs.requires_grad_()
        output = self.model(inputs)
        if layout.last_stage:
            loss = F.cross_entropy(output.flatten(0, 1), targets.flatten())
            loss.backward()
            loss = loss.detach()
        else:
            dist.send(output.detach().contiguous(), layout.neighbour(1))
            back = torch.empty(output.numel() + 1)
            dist.recv(back, layout.neighbour(1))
            output.backward(back[:-1].view_as(output))
            loss = back[-1]
        if not layout.first_stage:
            dist.send(torch.cat([inputs.grad.flatten(), loss.view(1)]), layout.neighbour(-1))
        return loss

    def _reduce(self, loss):
        """Gradients and loss, averaged over the replicas in one all-reduce."""
        if self.layout.dp_group is None:
            return float(loss)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([p.grad.flatten() for p in parameters] + [loss.view(1)])
        dist.all_reduce(flat, group=self.layout.dp_group)
        flat /= self.layout.shape.dp
        at = 0
        for p in parameters:
            p.grad.copy_(flat[at:at + p.numel()].view_as(p))
            at += p.numel()
        return float(flat[-1])

    def state_dict(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(), "generator": self._generator.get_state(),
                "steps_done": self.steps_done}

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self._generator.set_state(state["generator"])
        self.steps_done = state["steps_done"]


