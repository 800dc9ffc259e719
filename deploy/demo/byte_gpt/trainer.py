"""The training loop, a step at a time."""

import contextlib
import dataclasses
import time

import torch
from torch.nn import functional as F

from byte_gpt import corpus
from byte_gpt.model import GPT
from byte_gpt.muon import MuonWithAdamW


@dataclasses.dataclass(frozen=True)
class StepResult:
    step: int
    loss: torch.Tensor  # 0-dim, detached; nats per byte.
    logit_max: torch.Tensor  # [layers, heads], or None where the trainer does not record it.


@dataclasses.dataclass
class History:
    """What `train` saw; lists by step."""

    losses: list = dataclasses.field(default_factory=list)
    logit_max: list = dataclasses.field(default_factory=list)  # Of [layers, heads] tensors.
    seconds: list = dataclasses.field(default_factory=list)  # Wall time of step and monitor.

    @property
    def final_loss(self):
        """Mean of the last 50 steps."""
        last = self.losses[-50:]
        return sum(last) / len(last)

    @property
    def peak_logit(self):
        return max(float(m.max()) for m in self.logit_max)


class Trainer:
    """One model, its optimizer, schedule and data, all from `config.seed`.

    `model`, `optimizer` and `scheduler` are what a monitor attaches to. Two trainers do not share state, so their
    steps may be interleaved.
    """

    def __init__(self, config, text=None, record_logits=True):
        torch.manual_seed(config.seed)
        self.config = config
        self.model = GPT(config).to(getattr(torch, config.dtype))
        self.model.record_logits(record_logits)
        self.optimizer = _optimizer(self.model, config)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / max(1, config.warmup)))
        self._record = record_logits
        self._batches = corpus.Batches(corpus.load() if text is None else text,
                                       config.batch, config.context, config.seed)
        self._step = 0

    def step(self):
        """Forward, backward, optimizer and schedule on one fresh batch."""
        inputs, targets = self._batches.next()
        logits = self.model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self._step += 1
        return StepResult(self._step - 1, loss.detach(), self.model.logit_max() if self._record else None)

    def take_over(self, other):
        """Goes on from a copy of the other's weights and optimizer state. Where both train alike but for something
        that is to be timed, steps then cost the same: the denormals of runaway logits alone can double one.
        """
        self.model.load_state_dict(other.model.state_dict())
        self.optimizer.load_state_dict(other.optimizer.state_dict())


def _optimizer(model, config):
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = set(matrices)
    rest = [p for p in model.parameters() if p not in chosen]
    return MuonWithAdamW([
        {"params": matrices, "lr": config.lr, "muon": config.optimizer == "muon"},
        {"params": rest, "lr": config.lr_rest},
    ])


def train(config, monitor=None, on_step=None, text=None, record_logits=True):
    """Trains one arm and returns its History.

    monitor: called once with (model, optimizer, scheduler), returns a context manager whose `step(loss)` is called
             after every step; None: unwatched. `functools.partial(gyrostat.watch, run=..., allow=...)` fits.
    on_step: called with every StepResult and the trainer, after the monitor.
    """
    trainer = Trainer(config, text=text, record_logits=record_logits)
    history = History()
    watched = monitor(trainer.model, trainer.optimizer, trainer.scheduler) if monitor else contextlib.nullcontext()
    with watched as mon:
        for _ in range(config.steps):
            begin = time.perf_counter()
            result = trainer.step()
            if mon is not None:
                mon.step(result.loss)
            history.seconds.append(time.perf_counter() - begin)
            history.losses.append(float(result.loss))
            if result.logit_max is not None:
                history.logit_max.append(result.logit_max)
            if on_step is not None:
                on_step(result, trainer)
    return history
