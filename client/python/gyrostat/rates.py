"""A cap on the learning rate, put on inside the optimizer's step and taken off again (protocol.md section 6).

The loop's own schedule stays in charge: a ray caps it, cap(b) = rate + slope (b - boundary), and the rate is the least
of the schedule and all caps, times a scale. The arithmetic is that of daemon/remedy/warmup.h, operation by operation,
in doubles, so that ranks and daemon hold the same bits.

Every group's `lr` is multiplied by m = rate / base of the reference group, the first of the first optimizer, for the
time of the step alone: schedulers that compute from the group's last `lr` (CosineAnnealingLR, ExponentialLR, StepLR,
LinearLR, chains of them) would otherwise multiply m into every later step.
"""

import dataclasses
import functools
import math

import torch

from gyrostat.stepping import WrappedStep

_ROUNDING_ROOM = 1 + 1e-9
_RAYS_MAX = 8
_STRETCH_MAX = 8  # Declared warm-ups that an extension may last.


@dataclasses.dataclass(frozen=True)
class Ray:
    boundary: int  # Where it begins.
    rate: float  # There.
    slope: float  # Per boundary.
    until: int  # W': at it or later it ends, once it no longer lowers the rate.

    def cap(self, at):
        return self.rate + self.slope * float(at - self.boundary)

    def has_ended(self, base, at):
        return at >= self.until and self.cap(at) * _ROUNDING_ROOM >= base

    def shifted(self, shift):
        """The same line where boundaries count `shift` more."""
        if self.boundary + shift < 0:
            return Ray(0, self.cap(-shift), self.slope, max(self.until + shift, 1))
        return Ray(self.boundary + shift, self.rate, self.slope, self.until + shift)


@dataclasses.dataclass(frozen=True)
class Fall:
    """Multiplies the rate, from 1 at `boundary` linearly to `floor`, `length` boundaries later, where a ray begins."""

    boundary: int
    length: int
    floor: float

    def factor(self, at):
        if at <= self.boundary or at - self.boundary >= self.length:
            return 1.0
        part = float(at - self.boundary) / float(self.length)
        return 1.0 - (1.0 - self.floor) * part

    def has_ended(self, at):
        return at - self.boundary >= self.length


def check(ray, fall, peak, warmup):
    """Empty, or why an extension is out of bounds: refused then, never clamped. peak, warmup: as the job declares."""
    if not warmup or not (_finite(peak) and peak > 0):
        return "the job declares no warm-up and peak, wanted both to judge an extension by"
    if not (_finite(ray.rate) and 0 <= ray.rate <= peak):
        return f"the ray begins at a rate of {ray.rate:.9g}, wanted between 0 and the peak, {peak:.9g}"
    steepest = peak / warmup
    if not (_finite(ray.slope) and 0 <= ray.slope <= steepest * _ROUNDING_ROOM):
        return (f"the ray rises by {ray.slope:.9g} a step, wanted between 0 and the declared warm-up's "
                f"{steepest:.9g}")
    begin = ray.boundary if fall is None else fall.boundary
    if not (ray.until > ray.boundary and 0 < ray.until - begin <= _STRETCH_MAX * warmup):
        return (f"the extension lasts {max(0, ray.until - begin)} steps, wanted 1 to {_STRETCH_MAX * warmup}, "
                f"{_STRETCH_MAX} times the declared warm-up")
    if fall is not None:
        if not (_finite(fall.floor) and 0 < fall.floor <= 1):
            return f"the notch goes down to {fall.floor:.9g}, wanted a factor in (0, 1]"
        if fall.length < 0 or ray.boundary - fall.boundary != fall.length:
            return (f"the ray of a notch begins at boundary {ray.boundary}, wanted where the fall ends, "
                    f"{fall.boundary + fall.length}")
    return ""


def _finite(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


class Envelope:
    """What is in force on the learning rate of one job; the same on every rank, and part of the checkpoint."""

    def __init__(self):
        self.version = 0
        self._rays, self._falls = [], []
        self._scale, self._scale_until = 1.0, 0  # 0: no end.

    @property
    def idle(self):
        return not self._rays and not self._falls and self._scale == 1.0

    def scale_at(self, at):
        return self._scale if self._scale_until == 0 or at <= self._scale_until else 1.0

    def rate(self, base, at):
        """The rate of the optimizer step of boundary `at`; at most `base`."""
        if not base > 0:
            return base
        rate = base
        for fall in self._falls:
            rate = min(rate, base * fall.factor(at))
        for ray in self._rays:
            if at >= ray.boundary and not ray.has_ended(base, at):
                rate = min(rate, ray.cap(at))
        return rate * self.scale_at(at)

    def multiplier(self, base, at):
        """m, in (0, 1]; 1 where base is not a number above 0."""
        if not base > 0 or not math.isfinite(base):
            return 1.0
        rate = self.rate(base, at)
        return 1.0 if rate >= base else rate / base

    def add(self, ray, fall, expected):
        """A register's compare-and-set. False, and nothing changed, unless `expected` is the version."""
        if expected != self.version or len(self._rays) >= _RAYS_MAX:
            return False
        self._rays.append(ray)
        if fall is not None:
            self._falls.append(fall)
        self.version += 1
        return True

    def scale(self, value, until, expected):
        """Multiplies all rates by `value` in (0, 1], up to and with boundary `until` (0: for good)."""
        if expected != self.version or not (_finite(value) and 0 < value <= 1):
            return False
        self._scale, self._scale_until = float(value), int(until)
        self.version += 1
        return True

    def advance(self, base, at):
        """Called at each boundary, with the base rate of its step: forgets what has ended."""
        self._rays = [ray for ray in self._rays if not ray.has_ended(base, at)]
        self._falls = [fall for fall in self._falls if at < fall.boundary or not fall.has_ended(at)]
        if self._scale_until and at >= self._scale_until:
            self._scale, self._scale_until = 1.0, 0

    def state_dict(self):
        return {"version": self.version, "rays": [dataclasses.astuple(ray) for ray in self._rays],
                "falls": [dataclasses.astuple(fall) for fall in self._falls],
                "scale": self._scale, "scale_until": self._scale_until}

    def load_state_dict(self, state, shift=0):
        """Raises ValueError, KeyError or TypeError for what cannot be such a state. shift: by how much boundaries count
        more now."""
        rays = [Ray(int(b), float(rate), float(slope), int(until)) for b, rate, slope, until in state["rays"]]
        falls = [Fall(int(b), int(length), float(floor)) for b, length, floor in state["falls"]]
        scale, until = float(state["scale"]), int(state["scale_until"])
        sound = (len(rays) <= _RAYS_MAX and len(falls) <= _RAYS_MAX and 0 < scale <= 1
                 and all(_finite(r.rate) and r.rate >= 0 and _finite(r.slope) and r.slope >= 0 and r.until > r.boundary
                         for r in rays)
                 and all(0 < fall.floor <= 1 and fall.length >= 0 for fall in falls))
        if not sound:
            raise ValueError("numbers that no order could have made")
        self.version = int(state["version"])
        self._rays = [ray.shifted(shift) for ray in rays]
        self._falls = [Fall(fall.boundary + shift, fall.length, fall.floor) for fall in falls]
        self._scale, self._scale_until = scale, max(until + shift, 1) if until else 0


class Rates:
    """The envelope on the optimizers of a loop. Training thread only.

    Stays on when reporting ends: a cap that vanished in the middle would let the rate jump up.
    """

    def __init__(self, optimizers):
        self._optimizers = list(optimizers)
        self.envelope = Envelope()
        self.boundary = 1  # Of the next call of mon.step(), which the optimizer step now running belongs to.
        self._base = None  # The reference group's rate in this boundary's step.
        self._lowered, self._multiplier = 0, 1.0  # Steps inside which rates are lowered now, and by what.
        self._wrappers = [_StepWithRate(optimizer, self) for optimizer in self._optimizers]

    def trouble(self):
        """Why no envelope can be put on these optimizers, or ""."""
        if not self._optimizers:
            return "no optimizer was given to watch()"
        for optimizer in self._optimizers:
            name = type(optimizer).__name__
            for group in optimizer.param_groups:
                if "lr" not in group:
                    return f"{name} has a group without a learning rate"
                # Schedule-free and self-tuning optimizers make their own rate of it (protocol.md section 6.3).
                tuned = next((key for key in ("d", "train_mode", "weight_lr_power", "d_coef") if key in group), None)
                if tuned or "schedulefree" in name.lower() or "prodigy" in name.lower() or "dadapt" in name.lower():
                    return f"{name} tunes its rate by itself"
                if group.get("relative_step"):
                    return f"{name} makes its rate of the step alone (relative_step)"
        return ""

    def base(self):
        """The reference group's own rate, as a float; None: there is none."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                if "lr" in group:
                    return float(group["lr"])
        return None

    def advance(self):
        """The boundary has passed."""
        if not self.envelope.idle:
            # A scheduler has stepped since; a skipped step (found_inf) has no base of its own.
            base = self._base if self._base is not None else self.base() or 0.0
            self.envelope.advance(base, self.boundary)
        self._base = None
        self.boundary += 1

    def lower(self, optimizer):
        """Multiplies the rates of `optimizer`. Returns what puts them back."""
        if self.envelope.idle:
            return _nothing
        if not self._lowered:  # Else a step inside a step: the reference may be lowered already.
            self._base = self.base() or 0.0
            self._multiplier = self.envelope.multiplier(self._base, self.boundary)
        m = self._multiplier
        if m == 1.0:
            return _nothing
        saved = []
        for group in optimizer.param_groups:
            rate = group.get("lr")
            if isinstance(rate, torch.Tensor):  # Captured graphs read it where it lies.
                saved.append((group, rate, rate.detach().clone()))
                with torch.no_grad():
                    rate.mul_(m)
            elif rate is not None:
                saved.append((group, rate, None))
                group["lr"] = rate * m
        self._lowered += 1
        return functools.partial(self._restore, saved)

    def _restore(self, saved):
        self._lowered -= 1
        for group, rate, value in saved:
            if value is not None:
                with torch.no_grad():
                    rate.copy_(value)
            group["lr"] = rate

    def remove(self):
        for wrapper in self._wrappers:
            wrapper.remove()

    def state_dict(self):
        return {"boundary": self.boundary, **self.envelope.state_dict()}

    def load_state_dict(self, state):
        self.envelope.load_state_dict(state, shift=self.boundary - int(state["boundary"]))


def _nothing():
    pass


class _StepWithRate(WrappedStep):
    """Lowers the rate for the length of optimizer.step."""

    def __init__(self, optimizer, rates):
        def around(original, *args, **kwargs):
            restore = rates.lower(optimizer)
            try:
                return original(*args, **kwargs)
            finally:
                restore()

        super().__init__(optimizer, around)
