"""Gradient norms of a model that is cut over real processes, as the daemon gets them, against one process that has all
of it: what ranks hold alike counts once.
"""

import json

import pytest
import torch
import torch.distributed as dist
from torch import nn

import gyrostat
import models
import ranks_job
import test_flat_shards
import test_ranks
from gyrostatd import wait_until
from shards import from_shards, to_shards

pytestmark = test_ranks.pytestmark
daemon = test_ranks.daemon
STEPS, LAYERS, VOCABULARY = 5, 2, 32
SCALARS = ("grad_norm", "embedding_grad_norm", "output_grad_norm")


class Attention(models.Attention):
    """With a bias behind the sum over the heads, as row-parallel maps have it."""

    def __init__(self):
        super().__init__(ranks_job.WIDTH)
        self.after = nn.Parameter(torch.zeros(ranks_job.WIDTH))

    def forward(self, x):
        return super().forward(x) + self.after


class Shard(ranks_job.TensorParallelAttention):
    def __init__(self, whole, *place):
        super().__init__(whole, *place)
        self.after = nn.Parameter(whole.after.detach().clone())

    def forward(self, x):
        return super().forward(x) + self.after


class RowParallel(nn.Linear):
    """Its bias is added once, to the sum."""

    group = None

    def forward(self, x):
        return from_shards(x @ self.weight.T, self.group) + self.bias


class Mlp(nn.Module):
    """Of 3 times the width, so that no shard of it is as wide as the model."""

    def __init__(self, width=ranks_job.WIDTH):
        super().__init__()
        self.up, self.down, self.group = nn.Linear(width, 3 * width), RowParallel(3 * width, width), None
        self.router = nn.Linear(width, 2)

    def forward(self, x):
        inside = to_shards(x, self.group)
        return self.down(self.up(inside).tanh()) * self.router(x).softmax(-1)[..., :1]

    def cut(self, at, of, group):
        self.group = self.down.group = group
        rows = slice(at * self.up.out_features // of, (at + 1) * self.up.out_features // of)
        for part, name in ((self.up, "weight"), (self.up, "bias")):
            setattr(part, name, nn.Parameter(getattr(part, name).detach()[rows].clone()))
        self.down.weight = nn.Parameter(self.down.weight.detach()[:, rows].clone())


def whole_model(fresh, tied=False):
    """The gradients of the norms are as large as all others together. fresh: constants as a model begins with."""
    model = models.Model(layers=LAYERS)
    for layer in model.layers:
        layer.attn, layer.mlp = Attention(), Mlp()
    torch.manual_seed(5)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(0.1)
            elif isinstance(module, nn.Linear):
                module.weight *= 3
        for name, p in model.named_parameters():
            constant = p.dim() == 1
            if constant and not name.endswith("norm.weight") and "norm" not in name:
                p.zero_()
            if constant and not fresh:
                p += 0.05 * torch.randn(p.shape)
    if tied:
        model.head.weight = model.embed.weight
    return model


def expected(model, replicas):
    """{signal: [value of each step]}, {layer_grad_norm: [[value of each layer] of each step]}, of one process."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    said = {name: [] for name in (*SCALARS, "layer_grad_norm")}
    norms = []
    for step in range(STEPS):
        optimizer.zero_grad()
        models.loss_of(model, torch.cat([models.batch(1000 * r + step) for r in range(replicas)])).backward()

        def norm(parameters):
            return float(torch.cat([p.grad.flatten() for p in parameters]).norm())

        said["grad_norm"].append(norm(model.parameters()))
        said["embedding_grad_norm"].append(norm(model.embed.parameters()))
        said["output_grad_norm"].append(norm(model.head.parameters()) if model.head.weight is not model.embed.weight
                                        else None)
        said["layer_grad_norm"].append([norm(layer.parameters()) for layer in model.layers])
        norms.append([norm([layer.norm1.weight, layer.norm2.weight]) for layer in model.layers])
        optimizer.step()
    for of_norms, of_layers in zip(norms, said["layer_grad_norm"]):  # Else this test would not see one counted twice.
        assert all(part > 0.2 * all_ for part, all_ in zip(of_norms, of_layers))
    return said


def reported(daemon):
    """The same of what the daemon has got; all steps but the last, whose round did not come."""
    def series(**more):
        query = "&".join(f"{name}={value}" for name, value in more.items())
        status, body, _ = daemon.get(f"/api/runs/ranks/series?{query}")
        return [value for _, value in json.loads(body)["points"]] if status == 200 else []

    wait_until(lambda: len(series(signal="learning_rate")) >= STEPS, "all reports are stored")
    said = {name: series(signal=name)[: STEPS - 1] for name in SCALARS}
    layers = [series(signal="layer_grad_norm", layer=layer)[: STEPS - 1] for layer in range(LAYERS)]
    return {**said, "layer_grad_norm": [list(step) for step in zip(*layers)]}


def check(got, wanted):
    for name in SCALARS:
        of = [value for value in wanted[name][: STEPS - 1] if value is not None]
        assert got[name] == pytest.approx(of, rel=1e-4), name
    for got_step, wanted_step in zip(got["layer_grad_norm"], wanted["layer_grad_norm"]):
        assert got_step == pytest.approx(wanted_step, rel=1e-4)
    assert len(got["layer_grad_norm"]) == STEPS - 1


def train(rank, model, optimizer, address, place, backward, before_step=lambda: None):
    with gyrostat.watch(model, optimizer, run="ranks", address=address if rank == 0 else None, allow=("collect",),
                        place=place) as mon:
        ranks_job.wait_for_welcome(mon, rank)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = backward(step)
            before_step()
            optimizer.step()
            mon.step(loss)
            ranks_job.wait_for_answer(mon, rank)
        return mon.status


def averaged(model, group):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad /= dist.get_world_size(group)


def tensor_parallel(rank, world, address, fresh, dp=1):
    tp, replica = rank % 2, rank // 2
    rows = [dist.new_group([2 * r, 2 * r + 1]) for r in range(dp)]
    columns = [dist.new_group([2 * r + t for r in range(dp)]) for t in range(2)]
    model = whole_model(fresh)
    heads = ranks_job.HEADS // 2
    for layer in model.layers:
        layer.attn = Shard(layer.attn, heads * tp, heads, heads * tp, heads, rows[replica])
        layer.mlp.cut(tp, 2, rows[replica])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def backward(step):
        loss = models.loss_of(model, models.batch(1000 * replica + step))
        loss.backward()
        return loss

    return train(rank, model, optimizer, address, gyrostat.Place(dp=replica, tp=tp), backward,
                 lambda: averaged(model, columns[tp]))


@pytest.mark.parametrize("dp,fresh", [(1, True), (2, False)], ids=["fresh", "trained, of two replicas"])
def test_what_tensor_parallel_ranks_hold_alike_counts_once(tmp_path, daemon, dp, fresh):
    statuses = ranks_job.run(tensor_parallel, 2 * dp, tmp_path, address=daemon.grpc, fresh=fresh, dp=dp)
    assert set(statuses) == {"acting"}
    check(reported(daemon), expected(whole_model(fresh), dp))


def pipeline(rank, world, address, tied):
    whole = whole_model(fresh=False, tied=tied)
    stage = ranks_job.Stage(whole, rank, 1)
    shared = stage.embed.weight if rank == 0 else stage.head.weight
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
    pair = dist.new_group([0, 1])

    def backward(step):
        return ranks_job.train_stage(stage, models.batch(step), 0 if rank else None, None if rank else 1)

    def add():
        if tied:
            dist.all_reduce(shared.grad, group=pair)

    return train(rank, stage, optimizer, address, gyrostat.Place(pp=rank), backward, add)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_an_embedding_that_two_stages_share_counts_once(tmp_path, daemon, tied):
    assert set(ranks_job.run(pipeline, 2, tmp_path, address=daemon.grpc, tied=tied)) == {"acting"}
    check(reported(daemon), expected(whole_model(fresh=False, tied=tied), 1))


def masters_alone(rank, world, address):
    """Every rank has the whole model and all gradients of it; of the masters a slice."""
    model = whole_model(fresh=False)
    optimizer = test_flat_shards.ShardedSGD(model, lr=0.05)
    optimizer.grows = []

    def backward(step):
        model.zero_grad()
        loss = models.loss_of(model, models.batch(1000 * rank + step))
        loss.backward()
        return loss

    return train(rank, model, optimizer, address, None, backward, lambda: averaged(model, dist.group.WORLD))


def test_ranks_that_share_out_masters_alone_hold_everything_alike(tmp_path, daemon):
    assert set(ranks_job.run(masters_alone, 2, tmp_path, address=daemon.grpc)) == {"acting"}
    check(reported(daemon), expected(whole_model(fresh=False), 2))
