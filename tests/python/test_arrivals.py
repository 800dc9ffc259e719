"""A job that cannot report says so, once, and says when it can."""

import logging
import types

import pytest
import torch

import gyrostat
import models
from gyrostat import _abi
from gyrostat.arrivals import Arrivals
from gyrostat.trouble import Fuse

REFUSED = "unavailable: failed to connect to all addresses"
FULL = "resource exhausted: 4 runs are known, wanted at most 4"


class Job:
    """Steps once a second on a clock of its own. `acked`: what the daemon has; None: always everything."""

    def __init__(self):
        self.now, self.total, self.acked, self.dropped, self.connected, self.error = 0.0, 0, 0, 0, 0, ""
        self.looks = 0
        self.arrivals = Arrivals(self, {"run": "r", "address": "a:1"}, Fuse(), now=lambda: self.now, sleep=self.sleep)

    def stats(self):
        self.looks += 1
        acked = self.total if self.acked is None else self.acked
        return types.SimpleNamespace(reports_total=self.total, reports_acked=acked, dropped_unacked=self.dropped,
                                     dropped_hot=0, connected=self.connected, last_error=self.error.encode())

    def sleep(self, seconds):
        self.now += seconds

    def steps(self, count, every_s=1.0):
        for _ in range(count):
            self.arrivals.look()
            self.total += 1
            self.now += every_s
        return self


@pytest.fixture(autouse=True)
def _everything_is_kept(caplog):
    caplog.set_level(logging.INFO, logger="gyrostat")


def up(job):
    job.acked, job.connected = None, 1


def down(job, error=REFUSED):
    job.acked, job.connected, job.error = job.total, 0, error


def said(caplog):
    lines = [(record.levelname, record.message) for record in caplog.records]
    caplog.clear()
    return lines


def test_nothing_arrives_and_it_is_said_once_with_the_reason(caplog):
    job = Job()
    job.error = REFUSED
    job.steps(5)
    assert said(caplog) == []
    job.steps(1000)
    assert said(caplog) == [("WARNING", "no report of run 'r' was acknowledged for 5 s, wanted gyrostatd (the grpc= of "
                                        f"its ready line) at a:1: {REFUSED}. 5 reports wait, 0 were lost; training "
                                        "goes on")]
    job.arrivals.finish(250)
    assert said(caplog) == [("WARNING", "closing run 'r': none of its 1005 reports was acknowledged by a gyrostatd at "
                                        f"a:1: {REFUSED}")]


def test_the_connection_stands_is_said_once(caplog):
    job = Job()
    up(job)
    job.steps(1000)
    assert said(caplog) == [("INFO", "reports of run 'r' arrive at gyrostatd, a:1")]
    job.arrivals.finish(250)
    assert said(caplog) == []


def test_it_goes_and_comes_back(caplog):
    job = Job()
    up(job)
    job.steps(10)
    said(caplog)
    down(job)
    job.steps(20)
    [(level, sentence)] = said(caplog)
    assert level == "WARNING" and REFUSED in sentence
    job.dropped = 3
    up(job)
    job.steps(3)
    [(level, sentence)] = said(caplog)
    assert level == "INFO" and "arrive at a:1 again, after 2" in sentence and "3 were lost" in sentence


def test_what_comes_and_goes_all_the_time_does_not_fill_the_log(caplog):
    job = Job()
    for _ in range(100):
        up(job)
        job.steps(10)
        down(job)
        job.steps(10)
    assert 2 <= sum(level == "WARNING" for level, _ in said(caplog)) <= 4


def test_a_refusal_is_told_in_the_daemons_words_even_after_another_trouble(caplog):
    job = Job()
    job.error = REFUSED
    job.steps(20)
    said(caplog)
    job.error = FULL
    job.steps(20)
    job.error = REFUSED
    job.steps(20)
    [(level, sentence)] = said(caplog)
    assert level == "WARNING" and sentence.startswith(f"the gyrostatd at a:1 refuses run 'r': {FULL}. ")


def test_a_restart_within_the_patience_is_not_worth_a_word(caplog):
    job = Job()
    for _ in range(5):
        up(job)
        job.steps(10)
        down(job)
        job.steps(4)
    assert [level for level, _ in said(caplog)] == ["INFO"]


@pytest.mark.parametrize("every_s", [0.001, 0.3, 60.0, 7200.0])
def test_steps_of_any_length(caplog, every_s):
    job = Job()
    up(job)
    job.steps(int(20 / every_s) + 5, every_s)
    assert [level for level, _ in said(caplog)] == ["INFO"]
    assert job.looks <= job.now + 1  # Once a second, or at every step that takes longer.
    down(job)
    job.steps(int(20 / every_s) + 5, every_s)
    assert [level for level, _ in said(caplog)] == ["WARNING"]


def test_a_pause_between_steps_is_no_trouble(caplog):
    job = Job()
    up(job)
    job.steps(5)
    job.now += 3600
    job.steps(5)
    assert [level for level, _ in said(caplog)] == ["INFO"]


def test_an_old_reason_is_not_given_for_a_new_trouble(caplog):
    job = Job()
    job.error = REFUSED
    up(job)
    job.steps(5)
    down(job)
    job.connected = 1
    job.steps(20)
    sentence = said(caplog)[-1][1]
    assert REFUSED not in sentence and "it takes the reports, but acknowledges none" in sentence


def test_a_sentence_about_an_argument_is_no_reason(caplog):
    job = Job()
    job.error = 'the scalar\'s name "a b" is not valid'
    job.arrivals.of_arguments(job.error)
    job.steps(20)
    assert "a b" not in caplog.text and "nothing has answered so far" in caplog.text


def test_a_first_report_on_its_way_is_waited_for(caplog):
    job = Job().steps(1, every_s=0.0)

    def arrives(seconds):
        job.now += seconds
        job.acked = int(job.now > 0.1)

    job.arrivals._sleep = arrives
    assert 100 < job.arrivals.finish(250) < 150
    assert [level for level, _ in said(caplog)] == ["INFO"]


def test_a_close_waits_no_longer_than_its_budget(caplog):
    job = Job().steps(1, every_s=0.0)
    assert job.arrivals.finish(250) == 0 and job.now == pytest.approx(0.25, abs=0.01)
    assert [level for level, _ in said(caplog)] == ["WARNING"]
    job = Job()
    assert job.arrivals.finish(250) == 250 and said(caplog) == []  # There was nothing to report.


def test_a_monitor_says_at_its_end_that_nothing_arrived(fake_library, monkeypatch, caplog):
    monkeypatch.setattr(fake_library, "acked", 0)
    model = models.Model()
    with gyrostat.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), run="lost", address="fake:1") as mon:
        mon.step(1.0)
        mon.step(1.0)
    assert said(caplog) == [("WARNING", "closing run 'lost': none of its 2 reports was acknowledged by a gyrostatd at "
                                        "fake:1: fake trouble")]
    assert 0 < fake_library.last.flush_ms <= _abi.FLUSH_MS
