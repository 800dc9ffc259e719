"""The fake daemon of tests/support behind the real library, in this process: sends orders of registers."""

import ctypes
import os
import pathlib
import time

from gyrostat import _abi

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.setdefault("GYROSTAT_BIN", str(REPOSITORY / "build" / "dev" / "bin"))).parent
TRANSPORT = BUILD / "lib" / "libgyrostat_fake_transport.so"
ORDERS = BUILD / "lib" / "libgyrostat_fake_orders.so"


class FakeDaemon:
    """One for each process, made before watch(). It remembers how often each register was set."""

    def __init__(self):
        self._library = ctypes.CDLL(str(ORDERS))
        self._library.fake_reports.restype = self._library.fake_attempts.restype = ctypes.c_uint64
        self._library.fake_start()
        self._versions = {}
        self._sent = 0

    def order(self, kind, registers, ramp=0, life=60):
        """registers: {id: value}. Sent once a report has come; the order is due at the next boundaries."""
        self._wait(lambda: self._library.fake_reports() > 0, "a report")
        ids = sorted(registers)
        self._sent += 1
        numbers, values = (ctypes.c_uint32 * len(ids)), (ctypes.c_float * len(ids))
        sent = self._library.fake_order(self._sent, kind.encode(), numbers(*ids), values(*(registers[i] for i in ids)),
                                        numbers(*(self._versions.get(i, 0) for i in ids)), ctypes.c_size_t(len(ids)),
                                        ramp, ctypes.c_uint64(life))
        assert sent == 1
        for i in ids:
            self._versions[i] = self._versions.get(i, 0) + 1
        return self._sent

    def answer(self, number):
        """(outcome, reason) of an order; None: not yet."""
        text = ctypes.create_string_buffer(1 << 16)
        self._library.fake_answers(text, len(text))
        for line in text.value.decode().splitlines():
            said, outcome, reason = (line + "  ").split(" ", 2)
            if int(said) == number:
                return outcome, reason.strip()
        return None

    def answered(self, number):
        """The answer, once it is there."""
        self._wait(lambda: self.answer(number), f"the answer to order {number}")
        return self.answer(number)

    def allowed(self, attempts=1):
        """What the newest client allows, which is client number `attempts` of this daemon."""
        self._wait(lambda: self._library.fake_attempts() >= attempts, f"the hello of attempt {attempts}")
        text = ctypes.create_string_buffer(1 << 12)
        self._library.fake_allowed(text, len(text))
        return text.value.decode()

    @staticmethod
    def _wait(condition, what):
        end = time.monotonic() + 120  # Only what hangs meets it.
        while not condition():
            assert time.monotonic() < end, f"{what}: not within 120 s"
            time.sleep(0.005)


def use_fake_transport():
    """Clients of this process speak to the FakeDaemon."""
    class Client(_abi.Client):
        def __init__(self, library, options, model, collective=None):
            super().__init__(library, {**options, "transport": str(TRANSPORT)}, model, collective)

    _abi.Client = Client
