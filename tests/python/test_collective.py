"""The all-reduces under the agreement. `FakeCuda` is a double for the GPU that tests do not have: it notes in which
order streams, events and copies are used.
"""

import contextlib
import ctypes
import types

import pytest
import torch
import torch.distributed as dist

from gyrostat import _abi
from gyrostat.collective import Collective, DeviceRound


class Work:
    over = True

    def __init__(self, log):
        self._log = log

    def wait(self):
        self._log.append("work.wait")

    def is_completed(self):
        return Work.over


def lanes(*values):
    return (ctypes.c_float * len(values))(*values)


def call(function, buffer):
    return function(None, ctypes.addressof(buffer), len(buffer))


@pytest.fixture
def reduced(monkeypatch):
    """all_reduce that adds 1 to what it gets; the list says what was called."""
    log = []

    def all_reduce(tensor, op, group, async_op):
        assert async_op and group == "ours"
        log.append(("all_reduce", op, tensor.numel()))
        tensor += 1
        return Work(log)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    return log


def test_maxima_and_sums_come_back_in_place(reduced):
    collective = Collective("ours", None, 3, [(0, 1, 4, 8)])
    struct = collective.struct
    assert struct.replica == 3 and struct.shard_count == 1 and struct.shards[0].row_end == 8
    largest, total = lanes(1, 2, 3), lanes(5, 6)
    assert call(struct.max_begin, largest) == 0 and call(struct.sum_begin, total) == 0
    assert list(largest) == [1, 2, 3]  # Nothing is written before the wait.
    assert call(struct.max_wait, largest) == 0 and call(struct.sum_wait, total) == 0
    assert list(largest) == [2, 3, 4] and list(total) == [6, 7]
    assert [entry[1] for entry in reduced if entry[0] == "all_reduce"] == [dist.ReduceOp.MAX, dist.ReduceOp.SUM]


def test_what_fails_is_answered_and_never_raised(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("connection closed by peer")

    monkeypatch.setattr(dist, "all_reduce", broken)
    collective = Collective("ours", None, 0, [])
    assert call(collective.struct.max_begin, lanes(1)) != 0
    assert call(collective.struct.max_wait, lanes(1)) != 0  # Nothing is under way: that too.
    assert "connection closed" in str(collective.failure)
    collective.raise_interrupt()


def test_an_interrupt_reaches_the_loop_after_the_library(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(dist, "all_reduce", interrupted)
    collective = Collective("ours", None, 0, [])
    assert call(collective.struct.max_begin, lanes(1)) != 0
    with pytest.raises(KeyboardInterrupt):
        collective.raise_interrupt()
    collective.raise_interrupt()  # Once.


def test_a_new_buffer_is_taken_where_a_round_is_still_under_way(reduced):
    """The client was closed: a backend may still write into the old one."""
    collective = Collective("ours", None, 0, [])
    first, second = lanes(1, 1), lanes(2, 2)
    call(collective.struct.max_begin, first)
    call(collective.struct.max_begin, second)
    assert call(collective.struct.max_wait, second) == 0 and list(second) == [3, 3] and list(first) == [1, 1]


def test_a_round_is_done_once_all_that_was_begun_is_over(monkeypatch, reduced):
    collective = Collective("ours", None, 0, [])
    assert collective.struct.round_done(None) == 1  # There is nothing to wait for.
    call(collective.struct.max_begin, lanes(1))
    call(collective.struct.sum_begin, lanes(2))
    assert collective.struct.round_done(None) == 1
    monkeypatch.setattr(Work, "over", False)
    assert collective.struct.round_done(None) == 0
    call(collective.struct.max_wait, lanes(1))
    assert collective.struct.round_done(None) == 0  # The sum is under way.
    call(collective.struct.sum_wait, lanes(2))
    assert collective.struct.round_done(None) == 1


def test_what_fails_while_it_is_asked_is_left_to_the_wait(monkeypatch, reduced):
    def fails(error):
        def is_completed(self):
            raise error

        return is_completed

    collective = Collective("ours", None, 0, [])
    call(collective.struct.max_begin, lanes(1))
    monkeypatch.setattr(Work, "is_completed", fails(RuntimeError("connection closed by peer")))
    assert collective.struct.round_done(None) == 0 and not collective.done()
    collective.raise_interrupt()
    monkeypatch.setattr(Work, "is_completed", fails(KeyboardInterrupt()))
    assert collective.struct.round_done(None) == 0
    with pytest.raises(KeyboardInterrupt):
        collective.raise_interrupt()


class FakeCuda:
    """A double for torch.cuda."""

    def __init__(self, log):
        self.log = log
        self.current = "training"
        self.passed = self.capturing = False

    def is_current_stream_capturing(self):
        return self.capturing

    def _query(self):
        self.log.append("query")
        return self.passed

    def Stream(self, device):
        return "side"

    def Event(self):
        return types.SimpleNamespace(record=lambda stream: self.log.append(("record", stream)),
                                     synchronize=lambda: self.log.append("synchronize"), query=self._query)

    def device(self, device):
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before


def test_on_a_gpu_only_the_event_behind_the_copy_is_waited_for(monkeypatch, reduced):
    cuda = FakeCuda(reduced)
    monkeypatch.setattr(torch, "cuda", cuda)
    empty, copy = torch.empty, torch.Tensor.copy_
    monkeypatch.setattr(torch, "empty", lambda count, dtype, pin_memory=False, device=None: empty(count, dtype=dtype))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other, non_blocking=False: (
        reduced.append(("copy", cuda.current, non_blocking)), copy(self, other))[1])
    round_ = DeviceRound("ours", dist.ReduceOp.MAX, "cuda:0")
    buffer = lanes(1, 2)
    assert round_.done()
    round_.begin(ctypes.addressof(buffer), 2)
    assert list(buffer) == [1, 2]
    assert not round_.done() and reduced.pop() == "query"
    cuda.passed = True
    assert round_.done() and reduced.pop() == "query"
    cuda.capturing = True
    assert not round_.done()  # And the event is not asked for.
    round_.wait(ctypes.addressof(buffer), 2)
    assert list(buffer) == [2, 3]
    assert reduced == [("copy", "training", True), ("all_reduce", dist.ReduceOp.MAX, 2), "work.wait",
                       ("copy", "side", True), ("record", "side"), "synchronize"]


def test_the_struct_is_that_of_the_header():
    assert Collective("ours", None, 0, []).struct.struct_size == ctypes.sizeof(_abi.Collective)
