"""Who asks within a step whether the ranks' round is there, and who does not."""

import os
import threading
import types

import torch

import models
from gyrostat import early
from gyrostat.attention import LayerProbe
from gyrostat.discover import discover
from gyrostat.session import Session
from gyrostat.trouble import Fuse


class Job:
    """The client and the collective of a leader."""

    def __init__(self):
        self.there = False
        self.asked = self.progressed = 0

    def done(self):
        self.asked += 1
        return self.there

    def progress(self):
        self.progressed += 1


def leading():
    job, within = Job(), early.Early()
    within.lead(job, job)
    within.begun()
    return job, within


def test_a_rank_that_does_not_lead_never_asks():
    within = early.Early()
    assert not within.due and not early.NEVER.due
    within.begun()
    assert not within.due


def test_a_round_is_asked_for_until_it_is_there():
    job, within = leading()
    within.ask()
    within.ask()
    assert within.due and (job.asked, job.progressed) == (2, 0)
    job.there = True
    within.ask()
    assert not within.due and (job.asked, job.progressed) == (3, 1)
    within.begun()
    assert within.due
    within.over()
    assert not within.due


def test_only_the_training_thread_asks(monkeypatch):
    job, within = leading()
    job.there = True
    thread = threading.Thread(target=within.ask)  # Autograd's, say, that recomputes a forward.
    thread.start()
    thread.join()
    monkeypatch.setattr(os, "getpid", lambda: -1)  # A forked child has the objects, and no collective.
    within.ask()
    assert within.due and (job.asked, job.progressed) == (0, 0)


def test_the_hooks_within_a_step_ask():
    job, within = leading()
    layer = discover(models.Model()).layers[0]
    probe = LayerProbe(layer, Fuse(), within)
    with torch.no_grad():  # Whatever is measured: it is a place within a step.
        assert probe.around(lambda: "the forward", (), {}) == "the forward"
    assert job.asked == 1
    gradients = types.SimpleNamespace(read=lambda optimizer: None)
    session = Session(Fuse(), None, [], [], {}, None, gradients, types.SimpleNamespace(bound=()), None, 0, within)
    job.there = True
    session.before_update(None)
    assert (job.asked, job.progressed) == (2, 1)
    probe.around(lambda: None, (), {})
    session.before_update(None)
    assert (job.asked, job.progressed) == (2, 1)
