"""Sharded tensors are left alone: a collective that only we start would hang the job. `Sharded` is a double for
DTensor, which torch 1.13 lacks: it computes like a tensor, and what would be a collective fails the test.
"""

import pytest
import torch

import gyrostat
import models
from gyrostat.whole import shards_parameters, whole

_COLLECTIVES = ("norm", "amax", "aminmax", "max", "item", "tolist", "__float__", "stack", "cat", "reshape",
                "_foreach_norm", "flatten")


class Sharded(torch.Tensor):
    collectives = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if any(part in name for part in _COLLECTIVES):
            cls.collectives.append(name)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture
def collectives(monkeypatch):
    monkeypatch.setattr(Sharded, "collectives", [])
    return Sharded.collectives


def shard(model):
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = torch.nn.Parameter(parameter.detach().as_subclass(Sharded))


def said(caplog):
    return " ".join(record.message for record in caplog.records)


def test_what_is_whole():
    plain = torch.zeros(2)
    assert whole(plain) and whole(torch.nn.Parameter(plain)) and not whole(plain.as_subclass(Sharded))
    model = models.Model()
    assert not shards_parameters(model)
    shard(model)
    assert shards_parameters(model)


def test_a_sharded_model_is_trained_without_a_collective_of_ours(fake_library, collectives, caplog):
    model = models.Model()
    shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gyrostat.watch(model, optimizer, address="fake:1", allow=("qk_clip",)) as mon:
        for step in range(2):
            optimizer.zero_grad()
            loss = models.loss_of(model, models.batch(step))
            loss.backward()
            assert type(next(model.parameters())) is Sharded
            theirs = len(collectives)
            optimizer.step()
            mon.step(1.5, grad_norm=2.0)
            assert collectives[theirs:] == []
    reports = fake_library.last.reports
    assert [report["loss"] for report in reports] == [1.5, 1.5] and reports[0]["grad_norm"] == 2.0
    assert "layer_grad_norm" not in reports[0] and "hidden_ms" not in reports[0]
    assert "sharded" in said(caplog) and "stopped watching" not in said(caplog)


def test_a_forward_of_sharded_activations_starts_no_collective_of_ours(fake_library, collectives, caplog):
    unwatched = models.Model()
    shard(unwatched)
    models.loss_of(unwatched, models.batch(0))
    theirs = list(collectives)
    collectives.clear()
    watched = models.Model()
    shard(watched)
    with gyrostat.watch(watched, address="fake:1"):
        models.loss_of(watched, models.batch(0))
        assert collectives == theirs


def test_sharded_values_given_by_hand_are_left_out(fake_library, collectives, caplog):
    with gyrostat.watch(models.Model(), address="fake:1") as mon:
        value = torch.ones(2).as_subclass(Sharded)
        mon.attention_max(0, value)
        mon.step(value, grad_norm=value, extra=3.0)
    assert collectives == []
    report, = fake_library.last.reports
    assert report["extra"] == 3.0 and "loss" not in report and "grad_norm" not in report
    assert "loss is a Sharded" in said(caplog) and "grad_norm is a Sharded" in said(caplog)


def test_a_clip_of_a_sharded_projection_is_refused():
    from gyrostat.discover import discover

    model = models.Model()
    found = discover(model)
    assert found.layers[0].q.trouble() == ""
    shard(model)
    assert "on other ranks" in found.layers[0].q.trouble()
