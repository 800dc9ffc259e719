"""Stands in for libgyrostat: keeps what is recorded, hands out the orders that a test queues."""

import ctypes
import types

from gyrostat import _abi


class FakeClient:
    """The interface of _abi.Client. `reports` holds one {name: value or list} per step."""

    last = None  # The newest, for tests that only see watch().
    opened_status = _abi.OK
    acked = None  # Reports that the daemon has; None: all.

    def __init__(self, library, options, model, collective=None):
        self.options, self.model = options, model
        self.opened = self.opened_status
        self.reports, self.steps, self.acks, self.orders = [], [], [], []
        self.kinds, self.loaded, self.resets, self.closed = [], [], 0, False
        self.last_error = "fake trouble"
        self.registers, self.observed, self.held = {}, [], []
        self.cap = None  # The largest rate that learning_rate allows.
        FakeClient.last = self

    def begin(self, step):
        self.steps.append(step)
        self.reports.append({})
        self.kinds.append(None)
        return _abi.OK

    def scalar(self, name, value):
        self.reports[-1][name] = value
        return _abi.OK

    def array(self, name, address, count):
        self.reports[-1][name] = list((ctypes.c_float * count).from_address(address))
        return _abi.OK

    def attention(self, address, count, kind):
        self.kinds[-1] = kind
        return self.array("attn_logit_max", address, count)

    def end(self):
        return _abi.OK

    def poll(self):
        return self.orders.pop(0) if self.orders else None

    def ack(self, order, outcome, reason):
        self.acks.append((outcome, reason))
        return _abi.OK

    def learning_rate(self, base):
        return base if self.cap is None else min(base, self.cap)

    def register(self, register):
        return self.registers.get(register)

    def observe(self, register, value):
        self.observed.append((register, value))
        return _abi.OK

    def hold(self, reason):
        self.held.append(reason)
        return _abi.OK

    def reset(self):
        self.resets += 1
        return _abi.OK

    def save(self):
        return b"ledger"

    def load(self, state):
        self.loaded.append(state)
        return _abi.OK

    def stats(self):
        total = len(self.reports)
        return types.SimpleNamespace(reports_total=total, reports_acked=total if self.acked is None else self.acked,
                                     dropped_hot=0, dropped_unacked=0, connected=0,
                                     last_error=self.last_error.encode())

    def close(self, flush_ms=_abi.FLUSH_MS):
        self.closed, self.flush_ms = True, flush_ms


def clip_order(q, k, tau=30.0):
    """An order as gyro_poll fills it; q, k: lists of (layer, head, factor)."""
    order = _abi.Order(struct_size=ctypes.sizeof(_abi.Order), kind=b"qk_clip", tau=tau)
    order.q_count, order.k_count = len(q), len(k)
    order.q = (_abi.HeadFactor * max(1, len(q)))(*q)
    order.k = (_abi.HeadFactor * max(1, len(k)))(*k)
    return order


def register_order(kind, registers, ramp=0):
    """An order of another kind; registers: [(id, from, value)]."""
    order = _abi.Order(struct_size=ctypes.sizeof(_abi.Order), kind=kind.encode(), intent_id=b"intent-1", ramp=ramp)
    order.register_count = len(registers)
    order.registers = (_abi.Register * max(1, len(registers)))(*registers)
    return order
