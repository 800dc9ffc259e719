"""The learning rate under an envelope: what the optimizer sees, and that no scheduler ever notices."""

import copy
import math

import pytest
import torch
from torch.optim import lr_scheduler

from gyrostat.rates import Envelope, Fall, Rates, Ray, check


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


def make(rates=(1.0, 0.1)):
    optimizer = Seen(groups(rates), lr=1.0)
    return optimizer, Rates([optimizer])


def cosine(step, peak=1e-3, warmup=1000, total=20000):
    if step < warmup:
        return peak * step / warmup
    return peak * 0.5 * (1 + math.cos((step - warmup) / (total - warmup) * math.pi))


def stretch(step, end, base):
    """The ray of protocol.md section 6 for a schedule whose boundary is its step."""
    top = base(end)
    rate = min(base(step), top * step / end)
    return Ray(step, rate, (top - rate) / (end - step), end)


def test_the_vector_of_the_method():
    envelope = Envelope()
    assert envelope.add(stretch(300, 2000, cosine), None, 0)
    for step, rate in ((299, 2.99e-4), (300, 1.489771e-4), (301, 1.494737e-4), (1000, 4.965903e-4),
                       (1150, 5.710789e-4), (1999, 9.926841e-4), (2000, 9.931807e-4)):
        assert envelope.rate(cosine(step), step) == pytest.approx(rate, abs=0.6e-10), step
    for step in (2000, 2001, 5000):
        assert envelope.rate(cosine(step), step) == cosine(step)
    envelope.advance(cosine(2000), 2000)
    assert envelope.idle


def test_the_end_is_met_although_sums_are_rounded():
    envelope = Envelope()
    assert envelope.add(stretch(50, 189, lambda step: min(1.0, step / 100)), None, 0)
    assert envelope.rate(1.0, 188) < 1.0
    assert envelope.rate(1.0, 189) == 1.0


def test_ranks_and_daemon_hold_the_same_bits():
    """The same numbers as in tests/unit/remedy/warmup_test.cc."""
    envelope = Envelope()
    assert envelope.add(Ray(60, 0.3, 0.7 / 950, 1000), Fall(10, 50, 0.3), 0)
    assert envelope.scale(0.7, 0, 1)
    assert [envelope.rate(0.9, at).hex() for at in (9, 17, 60, 61, 333, 1000)] == [
        (0.9 * 0.7).hex(), (0.9 * (1.0 - (1.0 - 0.3) * (7.0 / 50.0)) * 0.7).hex(), (0.3 * 0.7).hex(),
        ((0.3 + 0.7 / 950) * 0.7).hex(), ((0.3 + 0.7 / 950 * 273.0) * 0.7).hex(), (0.9 * 0.7).hex()]


def test_every_group_is_lowered_for_the_step_alone():
    optimizer, rates = make()
    assert rates.envelope.add(Ray(1, 0.25, 0.0, 100), None, 0)
    optimizer.step()
    assert optimizer.rates == [[0.25, 0.025]]
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.1]


def test_the_rates_come_back_after_an_exception():
    optimizer, rates = make()
    assert rates.envelope.add(Ray(1, 0.25, 0.0, 100), None, 0)
    optimizer.fails = True
    with pytest.raises(RuntimeError, match="told to"):
        optimizer.step()
    assert optimizer.rates == [[0.25, 0.025]]
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.1]
    optimizer.fails = False
    optimizer.step()
    assert optimizer.rates[-1] == [0.25, 0.025]


def test_a_closure_sees_the_lowered_rate_and_its_result_passes():
    optimizer, rates = make()
    assert rates.envelope.add(Ray(1, 0.25, 0.0, 100), None, 0)
    seen = []
    assert optimizer.step(lambda: seen.append(optimizer.param_groups[0]["lr"]) or 7) == 7
    assert seen == [0.25] and optimizer.param_groups[0]["lr"] == 1.0


def test_a_rate_in_a_tensor_changes_in_place():
    rate = torch.tensor(1.0)
    optimizer = Seen(groups((1.0, 0.1)), lr=1.0)
    optimizer.param_groups[0]["lr"] = rate
    rates = Rates([optimizer])
    assert rates.envelope.add(Ray(1, 0.5, 0.0, 100), None, 0)
    inside = []
    original = optimizer.param_groups[0]
    step = Seen.step
    try:
        Seen.step = lambda self, closure=None: inside.append((original["lr"] is rate, float(rate)))
        probe = Seen(groups(), lr=1.0)
        probe.param_groups[0]["lr"] = rate
        original = probe.param_groups[0]
        probed = Rates([probe])
        assert probed.envelope.add(Ray(1, 0.5, 0.0, 100), None, 0)
        probe.step()
    finally:
        Seen.step = step
    assert inside == [(True, 0.5)]
    assert original["lr"] is rate and float(rate) == 1.0


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
    rates = Rates([optimizer])
    scheduler = scheduler or SCHEDULERS[name](optimizer)
    assert rates.envelope.add(Ray(5, 0.05, 0.01, 30), None, 0)
    wanted = Envelope()
    wanted.add(Ray(5, 0.05, 0.01, 30), None, 0)
    lowered = 0
    for step in range(50):
        assert [group["lr"] for group in optimizer.param_groups] == expected[step], step
        optimizer.step()
        base, rate = expected[step][0], optimizer.rates[-1][0]
        assert rate == pytest.approx(wanted.rate(base, step + 1), rel=1e-12)
        assert optimizer.rates[-1][1] == pytest.approx(expected[step][1] * (rate / base if base else 1.0), rel=1e-12)
        lowered += rate < base
        scheduler.step()
        rates.advance()
        wanted.advance(expected[step][0], step + 1)
    assert 10 < lowered < 50


def test_several_optimizers_follow_the_first_ones_group():
    first, second = Seen(groups((1.0,)), lr=1.0), Seen(groups((0.5,)), lr=1.0)
    rates = Rates([first, second])
    assert rates.envelope.add(Ray(1, 0.25, 0.0, 100), None, 0)
    second.step()
    first.step()
    assert first.rates == [[0.25]] and second.rates == [[0.125]]


class Outer(Seen):
    """Steps another optimizer inside its own step."""

    def step(self, closure=None):
        super().step()
        self.inner.step()


def test_a_step_inside_a_step_is_lowered_once():
    outer, inner = Outer(groups((1.0,)), lr=1.0), Seen(groups((0.5,)), lr=1.0)
    outer.inner = inner
    rates = Rates([outer, inner])
    assert rates.envelope.add(Ray(1, 0.25, 0.0, 100), None, 0)
    outer.step()
    assert outer.rates == [[0.25]] and inner.rates == [[0.125]]
    assert outer.param_groups[0]["lr"] == 1.0 and inner.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("base", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_no_rate_is_left_alone(base):
    optimizer, rates = make((base, 0.1))
    assert rates.envelope.add(Ray(1, 0.25, 0.0, 100), None, 0)
    optimizer.step()
    assert optimizer.rates[0][1] == 0.1


def test_idle_and_removed_it_touches_nothing():
    optimizer, rates = make()
    optimizer.step()
    assert optimizer.rates == [[1.0, 0.1]]
    assert rates.envelope.add(Ray(1, 0.25, 0.0, 100), None, 0)
    rates.remove()
    optimizer.step()
    assert optimizer.rates[-1] == [1.0, 0.1]
    assert "step" not in optimizer.__dict__


def test_a_job_resumes_inside_an_envelope():
    optimizer, rates = make()
    assert rates.envelope.add(Ray(3, 0.2, 0.02, 60), Fall(1, 2, 0.5), 0)
    assert rates.envelope.scale(0.9, 40, 1)
    for _ in range(10):
        optimizer.step()
        rates.advance()
    state = copy.deepcopy(rates.state_dict())
    expected = []
    for _ in range(60):
        optimizer.step()
        expected.append(optimizer.rates[-1])
        rates.advance()
    fresh, resumed = make()
    resumed.load_state_dict(state)  # Boundaries begin at 1 again: the ray moves with them.
    again = []
    for _ in range(60):
        fresh.step()
        again.append(fresh.rates[-1])
        resumed.advance()
    torch.testing.assert_close(torch.tensor(again), torch.tensor(expected), rtol=1e-12, atol=0)
    assert resumed.envelope.version == 2
    assert any(rate[0] < 1.0 for rate in expected) and expected[-1] == [1.0, 0.1]
    last = Rates([])
    last.load_state_dict(resumed.state_dict())


@pytest.mark.parametrize("change", [
    {"rays": [(1, math.nan, 0.0, 5)]}, {"rays": [(1, 0.1, -1.0, 5)]}, {"rays": [(5, 0.1, 0.0, 5)]},
    {"falls": [(1, 2, 0.0)]}, {"scale": 0.0}, {"scale": 2.0}, {"rays": "x"}, {"rays": [(1, 0.1, 0.0, 9)] * 9},
])
def test_a_state_that_cannot_be_changes_nothing(change):
    envelope = Envelope()
    assert envelope.add(Ray(1, 0.5, 0.0, 9), None, 0)
    with pytest.raises((ValueError, TypeError)):
        envelope.load_state_dict({**envelope.state_dict(), **change})
    assert envelope.rate(1.0, 3) == 0.5


def test_writes_expect_a_version():
    envelope = Envelope()
    ray = Ray(1, 0.5, 0.0, 9)
    assert not envelope.add(ray, None, 1)
    assert envelope.add(ray, None, 0) and not envelope.add(ray, None, 0)
    assert not envelope.scale(0.5, 0, 0) and not envelope.scale(1.5, 0, 1) and not envelope.scale(math.nan, 0, 1)
    assert envelope.scale(0.5, 0, 1) and envelope.version == 2


@pytest.mark.parametrize("ray,fall,words", [
    (Ray(10, math.nan, 0.005, 300), None, "begins at a rate of nan"),
    (Ray(10, 1.1, 0.005, 300), None, "wanted between 0 and the peak"),
    (Ray(10, 0.1, 0.0101, 300), None, "wanted between 0 and the declared warm-up's"),
    (Ray(10, 0.1, -0.001, 300), None, "wanted between 0 and the declared warm-up's"),
    (Ray(10, 0.1, 0.005, 10), None, "lasts 0 steps"),
    (Ray(10, 0.1, 0.005, 811), None, "wanted 1 to 800"),
    (Ray(10, 0.1, 0.005, 300), Fall(0, 9, 0.3), "where the fall ends, 9"),
    (Ray(10, 0.1, 0.005, 300), Fall(0, 10, 0.0), "goes down to 0"),
])
def test_what_is_out_of_bounds_is_refused(ray, fall, words):
    assert words in check(ray, fall, 1.0, 100)
    assert check(Ray(10, 0.1, 0.005, 300), Fall(0, 10, 0.3), 1.0, 100) == ""
    assert "declares no warm-up" in check(ray, fall, 1.0, 0)


def test_optimizers_that_make_their_own_rate_are_refused():
    class Prodigy(Seen):
        pass

    assert Rates([Seen(groups(), lr=1.0)]).trouble() == ""
    assert "tunes its rate by itself" in Rates([Prodigy(groups(), lr=1.0)]).trouble()
    free = Seen(groups(), lr=1.0)
    free.param_groups[0]["weight_lr_power"] = 2.0
    assert "tunes its rate by itself" in Rates([free]).trouble()
    bare = Seen(groups(), lr=1.0)
    del bare.param_groups[1]["lr"]
    assert "without a learning rate" in Rates([bare]).trouble()
    assert "no optimizer" in Rates([]).trouble()
