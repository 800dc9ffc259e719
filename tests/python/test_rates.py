"""The learning rate under an envelope: what the optimizer sees, and that no scheduler ever notices."""

import math

import pytest
import torch
from torch.optim import lr_scheduler

from gyrostat import rates as rates_
from gyrostat.rates import Rates


class Seen(torch.optim.SGD):
    """Notes the rates of its groups inside each step; fails when told to."""

    def __init__(self, params, **options):
        super().__init__(params, **options)
        self.rates, self.fails = [], False

    def step(self, closure=None):
        loss = closure() if closure is not None else None
        self.rates.append([float(group["lr"]) for group in self.param_groups])
        if self.fails:
            raise RuntimeError("told to")
        return super().step() if closure is None else loss


def groups(rates=(1.0, 0.1)):
    return [{"params": [torch.nn.Parameter(torch.ones(2))], "lr": rate} for rate in rates]


class Cap:
    """Says what the library would: at most `value`."""

    def __init__(self, value=None):
        self.value, self.asked = value, []

    def __call__(self, base):
        self.asked.append(base)
        return base if self.value is None else min(base, self.value)


def make(rates=(1.0, 0.1), cap=None):
    optimizer = Seen(groups(rates), lr=1.0)
    return optimizer, Rates([optimizer], Cap(cap))


def test_every_group_is_lowered_for_the_step_alone():
    optimizer, rates = make(cap=0.25)
    optimizer.step()
    assert optimizer.rates == [[0.25, 0.025]]
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.1]


def test_the_rates_come_back_after_an_exception():
    optimizer, rates = make(cap=0.25)
    optimizer.fails = True
    with pytest.raises(RuntimeError, match="told to"):
        optimizer.step()
    assert optimizer.rates == [[0.25, 0.025]]
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.1]
    optimizer.fails = False
    optimizer.step()
    assert optimizer.rates[-1] == [0.25, 0.025]


def test_a_closure_sees_the_lowered_rate_and_its_result_passes():
    optimizer, rates = make(cap=0.25)
    seen = []
    assert optimizer.step(lambda: seen.append(optimizer.param_groups[0]["lr"]) or 7) == 7
    assert seen == [0.25] and optimizer.param_groups[0]["lr"] == 1.0


def test_a_rate_in_a_tensor_changes_in_place():
    """A captured graph reads it where it lies."""
    rate = torch.tensor(1.0)
    optimizer, _ = make(cap=0.5)
    optimizer.param_groups[0]["lr"] = rate
    inside = []
    optimizer.step(lambda: inside.append((optimizer.param_groups[0]["lr"] is rate, float(rate))))
    assert inside == [(True, 0.5)]
    assert optimizer.param_groups[0]["lr"] is rate and float(rate) == 1.0


def linear_warmup(optimizer):
    return lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)


SCHEDULERS = {
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=40),
    "exponential": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.97),
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 10, 0.5),
    "linear": linear_warmup,
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20)),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=[1.0, 0.1], total_steps=60),
    "sequential": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [linear_warmup(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)], [20]),
    "chained": lambda optimizer: lr_scheduler.ChainedScheduler(
        [linear_warmup(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.98)]),
    "restarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 15),
}


@pytest.mark.parametrize("made", ["before", "after"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_no_scheduler_notices(name, made):
    """Schedulers that compute from the group's last rate would multiply the envelope into every later step."""
    plain = Seen(groups(), lr=1.0)
    expected = []
    scheduler = SCHEDULERS[name](plain)
    for _ in range(50):
        expected.append([group["lr"] for group in plain.param_groups])
        plain.step()
        scheduler.step()
    optimizer = Seen(groups(), lr=1.0)
    scheduler = SCHEDULERS[name](optimizer) if made == "before" else None
    cap = Cap()
    rates = Rates([optimizer], cap)
    scheduler = scheduler or SCHEDULERS[name](optimizer)
    lowered = 0
    for step in range(50):
        assert [group["lr"] for group in optimizer.param_groups] == expected[step], step
        cap.value = 0.05 + 0.01 * (step - 4) if 4 <= step < 29 else None
        optimizer.step()
        base, rate = expected[step][0], optimizer.rates[-1][0]
        assert rate == pytest.approx(base if cap.value is None else min(base, cap.value), rel=1e-12)
        assert optimizer.rates[-1][1] == pytest.approx(expected[step][1] * (rate / base if base else 1.0), rel=1e-12)
        lowered += rate < base
        scheduler.step()
        rates.passed()
    assert 10 < lowered < 50


def test_several_optimizers_follow_the_first_ones_group():
    first, second = Seen(groups((1.0,)), lr=1.0), Seen(groups((0.5,)), lr=1.0)
    cap = Cap(0.25)
    rates = Rates([first, second], cap)
    second.step()
    first.step()
    assert first.rates == [[0.25]] and second.rates == [[0.125]] and cap.asked == [1.0]  # Once for each boundary.
    rates.passed()
    first.step()
    assert cap.asked == [1.0, 1.0]


class Outer(Seen):
    """Steps another optimizer inside its own step."""

    def step(self, closure=None):
        super().step()
        self.inner.step()


def test_a_step_inside_a_step_is_lowered_once():
    outer, inner = Outer(groups((1.0,)), lr=1.0), Seen(groups((0.5,)), lr=1.0)
    outer.inner = inner
    Rates([outer, inner], Cap(0.25))
    outer.step()
    assert outer.rates == [[0.25]] and inner.rates == [[0.125]]
    assert outer.param_groups[0]["lr"] == 1.0 and inner.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("base", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_no_rate_is_left_alone(base):
    optimizer, _ = make((base, 0.1), cap=0.25)
    optimizer.step()
    assert optimizer.rates[0][1] == 0.1


def test_idle_and_removed_it_touches_nothing():
    optimizer, rates = make()
    optimizer.step()
    assert optimizer.rates == [[1.0, 0.1]]
    rates.remove()
    optimizer.step()
    assert optimizer.rates[-1] == [1.0, 0.1]
    assert "step" not in optimizer.__dict__


@pytest.mark.parametrize("answer", [math.nan, -1.0, 2.0, math.inf])
def test_no_answer_raises_a_rate(answer):
    optimizer = Seen(groups(), lr=1.0)
    Rates([optimizer], lambda base: answer)
    optimizer.step()
    assert optimizer.rates == [[1.0, 0.1]]


def test_optimizers_that_make_their_own_rate_are_refused():
    class Prodigy(Seen):
        pass

    assert rates_.trouble([Seen(groups(), lr=1.0)]) == ""
    assert "tunes its rate by itself" in rates_.trouble([Prodigy(groups(), lr=1.0)])
    free = Seen(groups(), lr=1.0)
    free.param_groups[0]["weight_lr_power"] = 2.0
    assert "tunes its rate by itself" in rates_.trouble([free])
    bare = Seen(groups(), lr=1.0)
    del bare.param_groups[1]["lr"]
    assert "without a learning rate" in rates_.trouble([bare])
    assert "no optimizer" in rates_.trouble([])
