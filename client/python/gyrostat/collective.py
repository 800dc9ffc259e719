"""The job's own collective under the agreement of its ranks: the all-reduces of client/include/gyrostat/gyrostat.h,
carried by torch.distributed on a process group of their own.

A round is begun at one boundary and waited for at the next, so the wait is for something that was queued a whole step
ago. On a GPU nothing drains the device: lanes go over from pinned memory on the training stream, and come back on a
stream of our own that waits for the reduction; the host waits for the event behind that copy.

The lanes are copied into tensors of ours first. They belong to the client, which may be closed while a round is still
under way in a thread of the backend.
"""

import ctypes

import torch
import torch.distributed as dist

from gyrostat import _abi

_BYTES = 4  # Of a lane.


class HostRound:
    """One kind of all-reduce in host memory (gloo, MPI). At most one is under way."""

    def __init__(self, group, op):
        self._group, self._op = group, op
        self._lanes = self._work = None

    def begin(self, address, count):
        if self._lanes is None or self._lanes.numel() != count or self._work is not None:
            self._lanes = torch.empty(count, dtype=torch.float32)
        ctypes.memmove(self._lanes.data_ptr(), address, count * _BYTES)
        self._work = dist.all_reduce(self._lanes, op=self._op, group=self._group, async_op=True)

    def wait(self, address, count):
        work, self._work = self._work, None
        work.wait()
        ctypes.memmove(address, self._lanes.data_ptr(), count * _BYTES)

    def done(self):
        """Whether a wait comes back at once."""
        return self._work is None or self._work.is_completed()


class DeviceRound:
    """The same through a GPU (NCCL)."""

    def __init__(self, group, op, device):
        self._group, self._op, self._device = group, op, device
        self._stream = torch.cuda.Stream(device)
        self._event = torch.cuda.Event()
        self._there = self._here = None
        self._under_way = False

    def begin(self, address, count):
        if self._here is None or self._here.numel() != count:
            self._here = torch.empty(count, dtype=torch.float32, pin_memory=True)
            self._there = torch.empty(count, dtype=torch.float32, device=self._device)
        ctypes.memmove(self._here.data_ptr(), address, count * _BYTES)
        with torch.cuda.device(self._device):
            self._there.copy_(self._here, non_blocking=True)
            work = dist.all_reduce(self._there, op=self._op, group=self._group, async_op=True)
            with torch.cuda.stream(self._stream):
                work.wait()  # The stream's wait, not the host's.
                self._here.copy_(self._there, non_blocking=True)
                self._event.record(self._stream)
        self._under_way = True

    def wait(self, address, count):
        self._under_way = False
        self._event.synchronize()
        ctypes.memmove(address, self._here.data_ptr(), count * _BYTES)

    def done(self):
        if not self._under_way:
            return True
        # Where the training thread captures a graph, a query would spoil it.
        return not torch.cuda.is_current_stream_capturing() and self._event.query()


class Collective:
    """What _abi.Client takes. No exception of a round reaches the library: it hears that the round failed here, and
    the first one is kept in `failure`.
    """

    def __init__(self, group, device, replica, shards):
        """device: None for host memory. shards: [(layer, key, first row, end)]; empty: all of the model."""
        def make(op):
            return HostRound(group, op) if device is None else DeviceRound(group, op, device)

        largest, total = self._rounds = make(dist.ReduceOp.MAX), make(dist.ReduceOp.SUM)
        self.failure = None
        self._interrupt = None
        self._shards = (_abi.Shard * max(1, len(shards)))(*shards)
        self.struct = _abi.Collective(
            struct_size=ctypes.sizeof(_abi.Collective), replica=replica, shards=self._shards, shard_count=len(shards),
            max_begin=self._guarded(largest.begin), max_wait=self._guarded(largest.wait),
            sum_begin=self._guarded(total.begin), sum_wait=self._guarded(total.wait),
            round_done=_abi.ASK(self._answer))

    def done(self):
        """Whether no round is under way that a wait would wait for. Never blocks; what fails is for the wait to say."""
        try:
            return all(each.done() for each in self._rounds)
        except Exception:
            return False

    def _answer(self, _):
        try:
            return int(self.done())
        except BaseException as interrupt:
            self._interrupt = interrupt
            return 0

    def _guarded(self, function):
        def call(_, address, count):
            try:
                function(address, count)
                return 0
            except Exception as error:
                self.failure = self.failure or error
            except BaseException as interrupt:  # Ctrl-C: the loop gets it as soon as the library has come back.
                self._interrupt = interrupt
            return 1

        return _abi.REDUCE(call)

    def raise_interrupt(self):
        """Raises what interrupted a round (KeyboardInterrupt, SystemExit), once."""
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            raise interrupt
