"""What is told about a scheduler is what it does."""

import pytest
import torch
from torch.optim import lr_scheduler

from gyrostat import arguments, schedules
from gyrostat.trouble import Fuse


def optimizer(rate=0.3):
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=rate)


def warmed(then):
    def make(one):
        return lr_scheduler.SequentialLR(one, [lr_scheduler.LinearLR(one, start_factor=0.1, total_iters=20), then(one)],
                                         [20])
    return make


KNOWN = {
    "cosine": (lambda one: lr_scheduler.CosineAnnealingLR(one, 40), ("cosine", 0, 40)),
    "linear": (lambda one: lr_scheduler.LinearLR(one, start_factor=1.0, end_factor=0.1, total_iters=30),
               ("linear", 0, 30)),
    "warm-up": (lambda one: lr_scheduler.LinearLR(one, start_factor=0.1, total_iters=20), ("const", 20, None)),
    "warmed cosine": (warmed(lambda one: lr_scheduler.CosineAnnealingLR(one, 40)), ("cosine", 20, 60)),
    "constant": (lambda one: lr_scheduler.ConstantLR(one, factor=1.0), ("const", 0, None)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_schedulers_are_read(name):
    make, (kind, warmup, total) = KNOWN[name]
    one = optimizer()
    scheduler = make(one)
    spec = schedules.read(scheduler)
    assert spec == {"schedule_kind": kind, "schedule_peak": 0.3, "warmup_steps": warmup, "total_steps": total}
    rates = []
    for _ in range(80):
        rates.append(one.param_groups[0]["lr"])
        one.step()
        scheduler.step()
    assert max(rates) == pytest.approx(0.3)
    assert rates[: warmup + 1] == sorted(rates[: warmup + 1]) and rates[warmup] == pytest.approx(0.3)
    if kind != "const":
        assert rates[warmup:total] == sorted(rates[warmup:total], reverse=True)


@pytest.mark.parametrize("make", [
    lambda one: lr_scheduler.LambdaLR(one, lambda step: 1.0), lambda one: lr_scheduler.ExponentialLR(one, 0.9),
    lambda one: lr_scheduler.StepLR(one, 5), lambda one: lr_scheduler.ReduceLROnPlateau(one),
    lambda one: lr_scheduler.OneCycleLR(one, 0.3, total_steps=50),
    warmed(lambda one: lr_scheduler.ExponentialLR(one, 0.9)), lambda one: None, lambda one: object(),
])
def test_of_others_nothing_is_said(make):
    assert schedules.read(make(optimizer())) == {}


def test_a_schedule_by_hand(caplog):
    said = arguments.schedule({"kind": "wsd", "peak": 1e-3, "warmup_steps": 10.0, "total_steps": 100}, Fuse())
    assert said == {"schedule_kind": "wsd", "schedule_peak": 1e-3, "warmup_steps": 10, "total_steps": 100}
    assert caplog.text == ""
    wrong = {"kind": "sawtooth", "peak": -1, "warmup_steps": 1.5, "total_steps": "many", "steps": 3}
    assert arguments.schedule(wrong, Fuse()) == {}
    for words in ("'sawtooth', wanted one of const", "-1, wanted a rate", "1.5, wanted a whole", "'many', wanted",
                  "schedule['steps'] is 3, wanted only"):
        assert words in caplog.text
    assert arguments.schedule(5, Fuse()) == {} and arguments.schedule(None, Fuse()) == {}


def test_a_model_spec_by_hand(caplog):
    assert arguments.model_spec({"norm_placement": "post", "vocab_size": 7}, Fuse()) == {"norm_placement": "post",
                                                                                         "vocab_size": 7}
    assert arguments.model_spec({"norm": "post", "layers": "two", "struct_size": 3}, Fuse()) == {}
    assert arguments.model_spec("post", Fuse()) == {} and caplog.text.count("model_spec") == 4
