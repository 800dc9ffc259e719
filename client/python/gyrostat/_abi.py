"""libgyrostat's C ABI (client/include/gyrostat/gyrostat.h) in ctypes. The structs below mirror that header.

The hot calls go through PyDLL, which keeps the GIL: they take microseconds and never block, while giving the GIL away
could cost a switch interval (5 ms) to get it back. Opening and closing may take longer and release it.
"""

import ctypes
import ctypes.util
import os

VERSION = "0.1.0"
ABSENT = -3.4028234663852886e38  # -FLT_MAX: not measured.

OK, NONE, INACTIVE, DROPPED, INVALID, STATE, UNAVAILABLE, NO_MEMORY, UNSURE = range(9)
APPLIED, REFUSED, FAILED = 1, 2, 6
REGISTER_LR_SCALE, REGISTER_LR_SCALE_UNTIL, REGISTER_GRAD_CLIP, REGISTER_SKIP_BOUNDARY = range(4)
REGISTER_COLLECT_EVERY = 7
REGISTER_ALPHA, REGISTER_BETA = 64, 1088  # + layer.
KINDS = {"unknown": 0, "exact": 1, "lse_upper": 2, "sampled_lower": 3, "norm_product": 4}

FLUSH_MS = 250  # What an exit may cost.


class Model(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_uint32)]
        + [(name, ctypes.c_uint32)
           for name in ("layers", "hidden_size", "heads", "kv_heads", "head_dim", "vocab_size")]
        + [("master_fp32", ctypes.c_int32)]
        + [(name, ctypes.c_char_p)
           for name in ("attention", "norm_kind", "norm_placement", "qk_norm", "activation", "compute_dtype",
                        "optimizer", "preset", "schedule_kind")]
        + [(name, ctypes.c_double)
           for name in ("norm_eps", "deepnorm_alpha", "deepnorm_beta", "logit_softcap", "schedule_peak")]
        + [("warmup_steps", ctypes.c_uint64), ("total_steps", ctypes.c_uint64), ("norm_gain", ctypes.c_char_p)]
    )


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("address", ctypes.c_char_p),
        ("run", ctypes.c_char_p),
        ("framework", ctypes.c_char_p),
        ("allow", ctypes.c_char_p),
        ("tau_min", ctypes.c_double),
        ("rank", ctypes.c_uint32),
        ("world_size", ctypes.c_uint32),
        ("ring_reports", ctypes.c_uint32),
        ("unacked_reports", ctypes.c_uint32),
        ("unacked_bytes", ctypes.c_uint64),
        ("transport", ctypes.c_char_p),
        ("logit_kind", ctypes.c_int),
        ("logit_scaled", ctypes.c_int32),
        ("logit_masked", ctypes.c_int32),
        ("logit_with_bias", ctypes.c_int32),
        ("logit_pre_cap", ctypes.c_int32),
        ("grad_norm_clipped", ctypes.c_int32),
        ("collective", ctypes.c_void_p),
        ("model", Model),
    ]


class Shard(ctypes.Structure):
    _fields_ = [("layer", ctypes.c_uint32), ("key", ctypes.c_int32), ("row_begin", ctypes.c_uint64),
                ("row_end", ctypes.c_uint64)]


REDUCE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
ASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Collective(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("max_begin", REDUCE),
        ("max_wait", REDUCE),
        ("replica", ctypes.c_uint32),
        ("shards", ctypes.POINTER(Shard)),
        ("shard_count", ctypes.c_size_t),
        ("sum_begin", REDUCE),
        ("sum_wait", REDUCE),
        ("round_done", ASK),
    ]


class HeadFactor(ctypes.Structure):
    _fields_ = [("layer", ctypes.c_uint32), ("head", ctypes.c_uint32), ("factor", ctypes.c_float)]


class Register(ctypes.Structure):
    # `from` is a keyword of Python's.
    _fields_ = [("id", ctypes.c_uint32), ("from_", ctypes.c_float), ("value", ctypes.c_float)]


class Order(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("id", ctypes.c_uint8 * 16),
        ("kind", ctypes.c_char * 24),
        ("intent_id", ctypes.c_char * 160),
        ("local", ctypes.c_int32),
        ("basis_boundary", ctypes.c_uint64),
        ("expires_boundary", ctypes.c_uint64),
        ("tau", ctypes.c_double),
        ("q_count", ctypes.c_uint32),
        ("q", ctypes.POINTER(HeadFactor)),
        ("k_count", ctypes.c_uint32),
        ("k", ctypes.POINTER(HeadFactor)),
        ("register_count", ctypes.c_uint32),
        ("registers", ctypes.POINTER(Register)),
        ("ramp", ctypes.c_uint32),
    ]


class Stats(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_uint32), ("connected", ctypes.c_int32)]
        + [(name, ctypes.c_uint64)
           for name in ("reports_total", "reports_acked", "dropped_hot", "dropped_unacked", "invalid_total",
                        "reconnects_total", "orders_received", "orders_applied", "orders_refused", "boundary")]
        + [("epoch", ctypes.c_uint32), ("ledger_version", ctypes.c_uint64), ("last_error", ctypes.c_char * 256)]
    )


_HANDLE = ctypes.c_void_p
_HOT = {
    "gyro_step_begin": [_HANDLE, ctypes.c_int64],
    "gyro_record_scalar": [_HANDLE, ctypes.c_char_p, ctypes.c_double],
    "gyro_record_array": [_HANDLE, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t],
    "gyro_record_attn_logit_max": [_HANDLE, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
    "gyro_progress": [_HANDLE],
    "gyro_step_end": [_HANDLE],
    "gyro_poll": [_HANDLE, ctypes.POINTER(Order)],
    "gyro_ack": [_HANDLE, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p],
    "gyro_learning_rate": [_HANDLE, ctypes.c_double, ctypes.POINTER(ctypes.c_double)],
    "gyro_register_value": [_HANDLE, ctypes.c_uint32, ctypes.POINTER(ctypes.c_float)],
    "gyro_observe": [_HANDLE, ctypes.c_uint32, ctypes.c_float],
    "gyro_hold": [_HANDLE, ctypes.c_char_p],
    "gyro_stats": [_HANDLE, ctypes.POINTER(Stats)],
}
_COLD = {
    "gyro_options_init": [ctypes.POINTER(Options)],
    "gyro_open": [ctypes.POINTER(Options), ctypes.POINTER(_HANDLE)],
    "gyro_close": [_HANDLE, ctypes.c_uint32],
    "gyro_reset": [_HANDLE],
    "gyro_state_save": [_HANDLE, ctypes.POINTER(ctypes.POINTER(ctypes.c_uint8)), ctypes.POINTER(ctypes.c_size_t)],
    "gyro_state_load": [_HANDLE, ctypes.c_char_p, ctypes.c_size_t],
}


def candidates():
    """Where the library may be, best first. The package may be a link beside build/<preset>/lib: links stay
    unresolved.
    """
    named = os.environ.get("GYROSTAT_LIBRARY")
    if named:
        return [named]
    package = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.normpath(os.path.join(package, "..", "..", "lib", "libgyrostat.so"))
    found = [beside] if os.path.exists(beside) else []
    system = ctypes.util.find_library("gyrostat")
    return found + [system or "libgyrostat.so"]


class Library:
    """The loaded library's functions as attributes, without the `gyro_` prefix. Raises OSError saying what was
    tried.
    """

    def __init__(self):
        tried = []
        for path in candidates():
            try:
                cold = ctypes.CDLL(path)
                break
            except OSError as error:
                tried.append(str(error))
        else:
            raise OSError("libgyrostat.so cannot be loaded: " + "; ".join(tried))
        hot = ctypes.PyDLL(cold._name, handle=cold._handle)
        for library, table in ((hot, _HOT), (cold, _COLD)):
            for name, types in table.items():
                function = getattr(library, name)
                function.argtypes = types
                function.restype = ctypes.c_int
                setattr(self, name[len("gyro_"):], function)


def _text(value):
    return None if value is None else str(value).encode()


class Client:
    """One gyro_client. Methods return the C status; only the constructor raises (MemoryError)."""

    def __init__(self, library, options, model, collective=None):
        """options, model: {field: value}; None values are left at the library's defaults. collective: a
        collective.Collective, with which this blocks until all ranks are here; kept for as long as the client lives.
        """
        self._library = library
        self.options = options
        self._collective = collective
        c_options = Options(struct_size=ctypes.sizeof(Options))
        library.options_init(ctypes.byref(c_options))
        self._fill(c_options, options)
        self._fill(c_options.model, model)
        if collective is not None:
            c_options.collective = ctypes.addressof(collective.struct)
        self._handle = _HANDLE()
        self.opened = library.open(ctypes.byref(c_options), ctypes.byref(self._handle))
        if not self._handle:
            raise MemoryError("gyro_open had no memory")
        self._order = Order(struct_size=ctypes.sizeof(Order))
        self._stats = Stats(struct_size=ctypes.sizeof(Stats))

    @staticmethod
    def _fill(struct, values):
        types = dict(struct._fields_)
        for name, value in values.items():
            if value is not None:
                setattr(struct, name, _text(value) if types[name] is ctypes.c_char_p else value)

    def begin(self, step):
        return self._library.step_begin(self._handle, step)

    def scalar(self, name, value):
        return self._library.record_scalar(self._handle, name.encode(errors="replace"), value)

    def array(self, name, address, count):
        return self._library.record_array(self._handle, name.encode(), address, count)

    def attention(self, address, count, kind):
        return self._library.record_attn_logit_max(self._handle, address, count, KINDS[kind])

    def progress(self):
        """Within a step: of ranks that agree, the leader's report of the boundary before leaves now, if it can."""
        return self._library.progress(self._handle)

    def end(self):
        return self._library.step_end(self._handle)

    def poll(self):
        """The next order, valid until the next poll or ack; None: there is none."""
        if self._library.poll(self._handle, ctypes.byref(self._order)) != OK:
            return None
        return self._order

    def ack(self, order, outcome, reason):
        """Answers the polled order. `reason` may be empty."""
        return self._library.ack(self._handle, order.id, outcome, reason.encode() if reason else None)

    def learning_rate(self, base):
        """The rate of the step to come, where the schedule says `base`; once for each boundary."""
        rate = ctypes.c_double(base)
        self._library.learning_rate(self._handle, base, ctypes.byref(rate))
        return rate.value

    def register(self, register):
        """What a register says from this boundary on; None: there is no such register."""
        value = ctypes.c_float()
        answer = self._library.register_value(self._handle, register, ctypes.byref(value))
        return value.value if answer == OK else None

    def observe(self, register, value):
        return self._library.observe(self._handle, register, value)

    def hold(self, reason):
        """Nothing is applied while there is a reason; None: go on."""
        return self._library.hold(self._handle, reason.encode(errors="replace") if reason else None)

    def reset(self):
        return self._library.reset(self._handle)

    def save(self):
        """The state as bytes."""
        data = ctypes.POINTER(ctypes.c_uint8)()
        size = ctypes.c_size_t()
        self._library.state_save(self._handle, ctypes.byref(data), ctypes.byref(size))
        return ctypes.string_at(data, size.value) if size.value else b""

    def load(self, state):
        return self._library.state_load(self._handle, state, len(state))

    def stats(self):
        """The library's counters; the struct is reused by the next call."""
        self._library.stats(self._handle, ctypes.byref(self._stats))
        return self._stats

    @property
    def last_error(self):
        return self.stats().last_error.decode(errors="replace")

    def close(self, flush_ms=FLUSH_MS):
        """Flushes for at most that long. The client is not to be used after."""
        if self._handle:
            self._library.close(self._handle, flush_ms)
            self._handle = _HANDLE()
