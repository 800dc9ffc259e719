"""Hidden states and gradient norms against plain computations, and how little the loop may notice."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

import gyrostat
import models


def watch(model, optimizer=None, scheduler=None):
    return gyrostat.watch(model, optimizer, scheduler, address="fake:1")


def plain_norms(model):
    layers = [math.sqrt(sum(float(p.grad.square().sum()) for p in layer.parameters())) for layer in model.layers]
    total = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
    return layers, total


def train_step(model, optimizer, seed=0, clip=None):
    optimizer.zero_grad()
    loss = models.loss_of(model, models.batch(seed))
    loss.backward()
    before = plain_norms(model)
    if clip:
        clip(model.parameters())
    optimizer.step()
    return loss, before


def test_gradient_norms_by_layer(fake_library):
    model = models.Model(layers=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    with watch(model, optimizer) as mon:
        loss, (layers, total) = train_step(model, optimizer)
        mon.step(loss)
    report = fake_library.last.reports[0]
    assert report["loss"] == pytest.approx(float(loss)) and report["learning_rate"] == 0.25
    assert report["layer_grad_norm"] == pytest.approx(layers, rel=1e-5)
    assert report["grad_norm"] == pytest.approx(total, rel=1e-5)
    assert report["embedding_grad_norm"] == pytest.approx(float(model.embed.weight.grad.norm()), rel=1e-5)
    assert report["output_grad_norm"] == pytest.approx(float(model.head.weight.grad.norm()), rel=1e-5)


def test_large_models_are_not_joined(fake_library, monkeypatch):
    from gyrostat import signals

    monkeypatch.setattr(signals, "_JOINED_MAX", 0)
    test_gradient_norms_by_layer(fake_library)


def test_sparse_and_missing_gradients(fake_library):
    model = models.Model()
    model.embed = nn.Embedding(32, 16, sparse=True)
    model.layers[1].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer) as mon:
        models.loss_of(model, models.batch()).backward()
        embedding = model.embed.weight.grad.coalesce().values().norm()
        optimizer.step()
        mon.step(1.0)
        assert mon.active
    report = fake_library.last.reports[0]
    assert report["embedding_grad_norm"] == pytest.approx(float(embedding), rel=1e-5)
    assert report["layer_grad_norm"][1] == pytest.approx(-3.4028234663852886e38)  # Absent, not zero.


def test_the_norm_before_clipping_is_reported(fake_library):
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer) as mon:
        loss, (layers, total) = train_step(
            model, optimizer, clip=lambda params: torch.nn.utils.clip_grad_norm_(params, 1e-3))
        mon.step(loss)
        mon.step(loss, grad_norm=7.0)
    first, second = fake_library.last.reports
    assert total > 1e-2 and first["grad_norm"] == pytest.approx(total, rel=1e-4)
    assert first["layer_grad_norm"] == pytest.approx(layers, rel=1e-3)
    assert second["grad_norm"] == 7.0


def test_names_imported_before_are_wrapped_and_put_back(fake_library):
    import torch.nn.utils

    original = torch.nn.utils.clip_grad_norm_
    globals()["clip_grad_norm_"] = original
    mons = [watch(models.Model()) for _ in range(2)]
    assert globals()["clip_grad_norm_"] is not original and torch.nn.utils.clip_grad.clip_grad_norm_ is not original
    mons[0].close()
    assert globals()["clip_grad_norm_"] is not original
    mons[1].close()
    assert globals().pop("clip_grad_norm_") is original is torch.nn.utils.clip_grad_norm_


def test_clipping_by_value_is_said(fake_library, caplog):
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer) as mon:
        loss, _ = train_step(model, optimizer, clip=lambda params: torch.nn.utils.clip_grad_value_(params, 1e-3))
        mon.step(loss)
        mon.step(loss)
    assert caplog.text.count("are those after clipping") == 1


def test_clipping_only_a_part_is_not_the_global_norm(fake_library, caplog):
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer) as mon:
        loss, _ = train_step(
            model, optimizer, clip=lambda params: torch.nn.utils.clip_grad_norm_(list(params)[:2], 1e-3))
        after = plain_norms(model)[1]
        mon.step(loss)
    assert fake_library.last.reports[0]["grad_norm"] == pytest.approx(after, rel=1e-4)
    assert "are those after clipping" in caplog.text


@pytest.mark.parametrize("clip", ["clip_grad_norm_", "clip_grad_value_"])
def test_another_models_clipping_is_no_matter_of_ours(fake_library, caplog, clip):
    ours, theirs = models.Model(), models.Model(seed=1)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
    models.loss_of(theirs, models.batch(1)).backward()
    with watch(ours, optimizer) as mon, watch(theirs):
        for after in (False, True):
            loss, (_, total) = train_step(ours, optimizer, clip=lambda params: (
                not after and getattr(torch.nn.utils, clip)(theirs.parameters(), 1e-3),
                torch.nn.utils.clip_grad_norm_(params, 1e-3),
                after and getattr(torch.nn.utils, clip)(theirs.parameters(), 1e-3)))
            client = mon._session._client
            mon.step(loss)
            assert client.reports[-1]["grad_norm"] == pytest.approx(total, rel=1e-4)
    assert "are those after clipping" not in caplog.text


@pytest.mark.parametrize("of", [
    lambda ours, theirs: [*ours.parameters(), *theirs.parameters()],
    lambda ours, theirs: [*ours.parameters(), next(ours.parameters())],
], ids=["two models", "one twice"])
def test_clipping_more_than_the_model_is_not_its_norm(fake_library, caplog, of):
    ours, theirs = models.Model(), models.Model(seed=1)
    models.loss_of(theirs, models.batch(1)).backward()
    optimizer = torch.optim.SGD([*ours.parameters(), *theirs.parameters()], lr=0.1)
    with watch(ours, optimizer) as mon:
        models.loss_of(ours, models.batch()).backward()
        torch.nn.utils.clip_grad_norm_(of(ours, theirs), 1e-3)
        after = plain_norms(ours)[1]
        optimizer.step()
        mon.step(1.0)
    assert fake_library.last.reports[0]["grad_norm"] == pytest.approx(after, rel=1e-4)
    assert "are those after clipping" in caplog.text


def test_the_norm_of_masters_is_the_models(fake_library, caplog):
    model = models.Model()
    masters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1)
    with watch(model, optimizer) as mon:
        models.loss_of(model, models.batch()).backward()
        for master, p in zip(masters, model.parameters()):
            master.grad = p.grad / 128  # As a loss scaler leaves it.
        norm = torch.nn.utils.clip_grad_norm_(iter(masters), 1e-3)
        optimizer.step()
        mon.step(1.0)
    assert fake_library.last.reports[0]["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    assert "are those after clipping" not in caplog.text


def test_hidden_states_over_micro_batches(fake_library):
    model = models.Model(layers=2)
    boundaries = [[], [], []]
    with watch(model) as mon:
        for seed in range(2):
            x = model.embed(models.batch(seed))
            boundaries[0].append(x)
            for i, layer in enumerate(model.layers):
                x = layer(x)
                boundaries[i + 1].append(x)
        mon.step(1.0)
        mon.step(1.0)
    first, second = fake_library.last.reports
    together = [torch.cat(parts).detach() for parts in boundaries]
    assert first["hidden_ms"] == pytest.approx([float(x.square().mean()) for x in together], rel=1e-5)
    assert first["hidden_absmax"] == pytest.approx([float(x.abs().max()) for x in together])
    assert "hidden_ms" not in second


def test_non_finite_hidden_states_travel_as_they_are(fake_library):
    model = models.Model(layers=1)
    with torch.no_grad():
        model.embed.weight[3] = math.nan
    with watch(model) as mon:
        model(torch.full((1, 4), 3))
        mon.step(1.0)
    assert all(math.isnan(x) for x in fake_library.last.reports[0]["hidden_absmax"])


def test_hidden_state_by_keyword_and_tuple_outputs(fake_library):
    class Block(models.Block):
        def forward(self, hidden_states):
            return super().forward(hidden_states), "cache"

    model = nn.Module()
    model.layers = nn.ModuleList(Block() for _ in range(2))
    with watch(model) as mon:
        x = torch.randn(1, 3, 16)
        for layer in model.layers:
            x = layer(hidden_states=x)[0]
        mon.step(1.0)
    assert len(fake_library.last.reports[0]["hidden_ms"]) == 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_schedulers_do_not_notice(fake_library, when):
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def schedule():
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler = schedule() if when == "before" else None
        mon = watch(model, optimizer, scheduler)
        scheduler = scheduler or schedule()
        rates = []
        for seed in range(3):
            loss, _ = train_step(model, optimizer, seed)
            rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
            mon.step(loss)
        mon.close()
        train_step(model, optimizer)
    assert rates == [1.0, 0.5, 0.25] == [r["learning_rate"] for r in fake_library.last.reports]
    assert optimizer._step_count == 4


def test_optimizer_from_the_scheduler_and_several_optimizers(fake_library):
    model = models.Model()
    halves = list(model.parameters())
    first, second = torch.optim.SGD(halves[:3], lr=0.1), torch.optim.Adam(halves[3:], lr=0.2)
    with watch(model, [first, second]) as mon:
        models.loss_of(model, models.batch()).backward()
        total = plain_norms(model)[1]
        first.step()
        second.step()
        mon.step(1.0)
    assert fake_library.last.reports[0]["grad_norm"] == pytest.approx(total, rel=1e-5)
    assert fake_library.last.model["optimizer"] == "sgd+adam"
    scheduler = torch.optim.lr_scheduler.ConstantLR(second)
    with watch(model, scheduler=scheduler):
        assert fake_library.last.model["optimizer"] == "adam"


def test_closures_are_read_after_their_backward(fake_library):
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []

    def closure():
        optimizer.zero_grad()
        loss = models.loss_of(model, models.batch())
        loss.backward()
        norms.append(plain_norms(model)[1])
        return loss

    with watch(model, optimizer) as mon:
        optimizer.step(closure)
        optimizer.step(closure=closure)
        mon.step(1.0)
    assert fake_library.last.reports[0]["grad_norm"] == pytest.approx(norms[0], rel=1e-5)


def test_exceptions_of_the_optimizer_pass(fake_library):
    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("the user's own")

    model = models.Model()
    optimizer = Failing(model.parameters(), lr=0.1)
    mon = watch(model, optimizer)
    with pytest.raises(RuntimeError, match="the user's own"):
        optimizer.step()
    assert mon.active
    mon.close()
    assert "step" not in optimizer.__dict__


def test_optimizers_can_be_copied_and_saved(fake_library):
    model = models.Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with watch(model, optimizer):
        train_step(model, optimizer)
        copied = copy.deepcopy(optimizer)
        assert "step" not in copied.__dict__ and optimizer.state_dict().keys() == copied.state_dict().keys()


def test_skipped_optimizer_steps_report_no_gradients(fake_library):
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer) as mon:
        models.loss_of(model, models.batch()).backward()
        mon.step(1.0)  # As a loss scaler does after an overflow.
    assert "grad_norm" not in fake_library.last.reports[0]


def test_norms_of_a_part_of_the_model_are_shares():
    import fakes
    from gyrostat import _abi
    from gyrostat.layout import Layout
    from gyrostat.report import Report
    from gyrostat.signals import Gradients
    from gyrostat.trouble import Fuse

    model = models.Model(layers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = Gradients(model, list(model.layers), Fuse(), [optimizer])
    models.loss_of(model, models.batch()).backward()
    wanted = float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm())
    gradients.read(optimizer)
    report = Report(Fuse(), Layout(4, 4, first_layer=2, held=2, partial=True))
    gradients.report(report, None)
    client = fakes.FakeClient(None, {}, {})
    client.begin(1)
    report.send(client, lambda status: None)
    (sent,) = client.reports
    assert sent["grad_norm_share"] == pytest.approx(wanted, rel=1e-5) and "grad_norm" not in sent
    assert sent["layer_grad_norm"][:2] == [_abi.ABSENT] * 2 and min(sent["layer_grad_norm"][2:]) > 0


@pytest.mark.parametrize("joined", [True, False])
def test_what_other_ranks_hold_as_well_counts_in_part_and_a_clip_scales_all(monkeypatch, joined):
    import fakes
    from gyrostat import signals
    from gyrostat.layout import Layout
    from gyrostat.report import Report
    from gyrostat.trouble import Fuse

    if not joined:
        monkeypatch.setattr(signals, "_JOINED_MAX", 0)
    model = models.Model(layers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = signals.Gradients(model, list(model.layers), Fuse(), [optimizer])
    weights = {id(model.layers[1].norm1.weight): 0.5, id(model.layers[1].mlp[2].bias): 0.25,
               id(model.norm.weight): 0.5, id(model.head.weight): 0.0}
    client = fakes.FakeClient(None, {}, {})
    wanted = []
    for step in range(4):  # In the first the client opens between the reading and the report; in the third once more.
        if step == 2:
            weights = {id(model.head.weight): 0.0, id(model.embed.weight): 0.5, id(model.layers[0].norm2.bias): 0.125}
            gradients.settle(weights, ())
        optimizer.zero_grad()
        models.loss_of(model, models.batch(step)).backward()
        square = {id(p): float(p.grad.square().sum()) * weights.get(id(p), 1.0) for p in model.parameters()}
        wanted.append((sum(square.values()) ** 0.5,
                       [sum(square[id(p)] for p in layer.parameters()) ** 0.5 for layer in model.layers]))
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-2)
        gradients.clipping(norm, {id(p) for p in model.parameters()})
        gradients.read(optimizer)
        if step == 0:
            gradients.settle(weights, ())
        if step:  # Joined once it is known what may be.
            assert (gradients._plan[2] is not None) is joined
        report = Report(Fuse(), Layout(2, 4, partial=True))
        gradients.report(report, None)
        client.begin(step)
        report.send(client, lambda status: None)
    for sent, (share, layers) in zip(client.reports, wanted):
        assert sent["grad_norm_share"] == pytest.approx(share, rel=1e-3)
        assert sent["layer_grad_norm"] == pytest.approx(layers, rel=1e-3)
        assert "output_grad_norm" not in sent and sent["embedding_grad_norm"] > 0  # Another stage counts the head.


def test_a_head_is_known_by_the_vocabulary_of_the_whole_model():
    from gyrostat.signals import Gradients
    from gyrostat.trouble import Fuse

    stage = models.Model(layers=2)
    del stage.embed
    gradients = Gradients(stage, list(stage.layers), Fuse())
    head = [id(p) for p in gradients._params].index(id(stage.head.weight))
    assert gradients._kinds[head][0] == 4
    gradients.settle({}, (32, 16))
    assert gradients._kinds[head] == (3, 1.0)
