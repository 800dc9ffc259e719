"""Jobs of several real processes (torch.multiprocessing, gloo) for the tests: models that are shared out by data,
tensor or pipeline parallelism, whose attention logits grow by some percent at each step.
"""

import hashlib
import os
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

import gyrostatd
import models
import pacing
from shards import from_shards, to_shards

WIDTH, HEADS, LAYERS = 16, 4, 2


def run(work, world, tmp_path, **options):
    """Runs work(rank, world, **options) in `world` processes; returns what each returned. A rank that fails fails the
    test with its own traceback."""
    mp.spawn(_main, (work, world, str(tmp_path), options), nprocs=world)
    return [torch.load(pathlib.Path(tmp_path) / f"result{rank}") for rank in range(world)]


def _main(rank, work, world, folder, options):
    torch.set_num_threads(1)
    for name in ("RANK", "WORLD_SIZE", "GYROSTAT_ADDRESS"):
        os.environ.pop(name, None)
    dist.init_process_group("gloo", rank=rank, world_size=world, init_method=f"file://{folder}/meeting")
    leave = options.pop("leave", False)  # Without a word to the others.
    result = work(rank, world, **options)
    if not leave:
        dist.barrier()
    torch.save(result, f"{folder}/result{rank}")
    if leave:
        os._exit(0)


class Growing(torch.optim.SGD):
    """SGD on gradients that are averaged over `group`; then the projections of queries and keys grow: a head by its own
    percentage, whatever its gradients say."""

    def __init__(self, model, group=None, lr=1e-3, first_head=0):
        super().__init__(model.parameters(), lr=lr)
        self.group, self.first_head = group, first_head
        self.grows = [attention for attention in model.modules() if hasattr(attention, "q_proj")]

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and self.group is not None:
                    dist.all_reduce(p.grad, group=self.group)
                    p.grad /= dist.get_world_size(self.group)
        super().step()
        for attention in self.grows:
            for projection in (attention.q_proj, attention.k_proj):
                rows = projection.weight.view(-1, attention.head_dim, projection.weight.shape[1])
                for head in range(len(rows)):
                    rows[head] *= 1.015 + 0.003 * (head + self.first_head)


def digest(model):
    """Of all bits of the weights."""
    made = hashlib.sha256()
    for name, p in sorted(model.named_parameters()):
        made.update(name.encode() + p.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return made.hexdigest()


class TensorParallelAttention(models.Attention):
    """Heads [first, first + heads) of a whole attention; the output is summed over the group."""

    def __init__(self, whole, first, heads, kv_first, kv_heads, group):
        super().__init__(WIDTH, whole.num_heads, whole.num_kv_heads)
        width = whole.head_dim
        self.num_heads, self.num_kv_heads, self.group = heads, kv_heads, group
        for name, begin, count in (("q_proj", first, heads), ("k_proj", kv_first, kv_heads),
                                   ("v_proj", kv_first, kv_heads)):
            rows = getattr(whole, name).weight.detach()[begin * width : (begin + count) * width]
            setattr(self, name, nn.Linear(WIDTH, count * width, bias=False))
            getattr(self, name).weight = nn.Parameter(rows.clone())
        self.o_proj = nn.Linear(heads * width, WIDTH, bias=False)
        self.o_proj.weight = nn.Parameter(whole.o_proj.weight.detach()[:, first * width : (first + heads) * width]
                                          .clone())

    def forward(self, x):
        x = to_shards(x, self.group)
        batch, tokens, _ = x.shape
        q, k, v = self.project(x)
        mask = torch.full((tokens, tokens), float("-inf")).triu(1)
        scores = q.detach() @ k.detach().transpose(-1, -2) * self.head_dim**-0.5 + mask
        self.maxima = scores.amax(dim=(0, 2, 3))
        out = self._softmax(q, k, v, self.head_dim**-0.5, mask)
        return from_shards(self.o_proj(out.transpose(1, 2).reshape(batch, tokens, -1)), self.group)


class Stage(nn.Module):
    """Layers [first, first + count) of a whole model, with the embedding or the head where it begins or ends."""

    def __init__(self, whole, first, count):
        super().__init__()
        self.begins, self.ends = first == 0, first + count == len(whole.layers)
        if self.begins:
            self.embed = whole.embed
        self.layers = nn.ModuleList(list(whole.layers)[first : first + count])
        if self.ends:
            self.norm, self.head = whole.norm, whole.head

    def forward(self, x):
        x = self.embed(x) if self.begins else x
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)) if self.ends else x


def train_stage(stage, tokens, before, after):
    """One step of a pipeline of two: activations come from rank `before`, or go on to `after`. Returns the loss, where
    it ends."""
    shape = (*tokens.shape, WIDTH)
    x = tokens
    if before is not None:
        x = torch.empty(shape)
        dist.recv(x, before)
        x.requires_grad_()
    out = stage(x)
    if after is not None:
        dist.send(out.detach(), after)
        gradient = torch.empty(shape)
        dist.recv(gradient, after)
        out.backward(gradient)
        return None
    loss = F.cross_entropy(out[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    dist.send(x.grad, before)
    return loss.detach()


class Answers:
    """Notes what a process answered to orders."""

    def __init__(self):
        from gyrostat import _abi

        self.list = []
        ack = _abi.Client.ack

        def noted(client, order, outcome, reason):
            self.list.append((order.kind.decode(), outcome, reason))
            return ack(client, order, outcome, reason)

        _abi.Client.ack = noted


def wait_until(condition, what):
    gyrostatd.wait_until(condition, what, deadline_s=600, pause_s=0.001)  # Only what hangs meets it.


def wait_for_welcome(monitor, rank):
    """Until the leader's stream is open: a run as short as a test would be over before."""
    if rank == 0:
        wait_until(lambda: monitor._session._client.stats().connected, "a stream")
    dist.barrier()


def wait_for_answer(monitor, rank):
    """Until the daemon has judged every report that has left the leader: all but the newest, which waits for its round.
    With it an order's delay is a number of steps, on however busy a machine. The others wait in their next collective.
    """
    if rank == 0:
        pacing.wait_for_answer(monitor, held=1)
