"""Learning rates under a cap, put on inside the optimizer's step and taken off again (protocol.md section 6).

The loop's own schedule stays in charge. What is in force (rays of longer warm-ups, a scale) the library keeps and
evaluates, the same on every rank: gyro_learning_rate. Every group's `lr` is multiplied by m = rate / base of the
reference group, the first of the first optimizer, for the time of the step alone: schedulers that compute from the
group's last `lr` (CosineAnnealingLR, ExponentialLR, StepLR, LinearLR, chains of them) would otherwise multiply m into
every later step.
"""

import functools
import math

import torch

from gyrostat.stepping import WrappedStep


def trouble(optimizers):
    """Why no cap can be put on these optimizers, or ""."""
    if not optimizers:
        return "no optimizer was given to watch()"
    for optimizer in optimizers:
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


class Rates:
    """The caps on the optimizers of a loop. Training thread only."""

    def __init__(self, optimizers, rate):
        """rate(base) → the rate of the step to come, at most `base`: _abi.Client.learning_rate, asked once for each
        boundary.
        """
        self._optimizers = list(optimizers)
        self._rate = rate
        self._asked = False  # In this boundary.
        self.multiplier = 1.0  # Of this boundary's step.
        self._wrappers = [_StepWithRate(optimizer, self) for optimizer in self._optimizers]

    def base(self):
        """The reference group's own rate, as a float; None: there is none."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                if "lr" in group:
                    return float(group["lr"])
        return None

    def passed(self):
        """The boundary has passed: its successor has a rate of its own."""
        self._asked = False

    def lower(self, optimizer):
        """Multiplies the rates of `optimizer`. Returns what puts them back."""
        if not self._asked:  # Several optimizers, or a step inside a step, are one boundary's: one m.
            self._asked = True
            self.multiplier = self._multiplier_of(self.base())
        m = self.multiplier
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
        return functools.partial(_restore, saved)

    def _multiplier_of(self, base):
        if base is None or not base > 0 or not math.isfinite(base):
            return 1.0
        rate = self._rate(base)
        return rate / base if 0 <= rate < base else 1.0

    def remove(self):
        for wrapper in self._wrappers:
            wrapper.remove()


def _restore(saved):
    for group, rate, value in saved:
        if value is not None:
            with torch.no_grad():
                rate.copy_(value)
        group["lr"] = rate


def _nothing():
    pass


class _StepWithRate(WrappedStep):
    """Lowers the rate for the length of optimizer.step."""

    def __init__(self, optimizer, rates):
        self._inside = False

        def around(original, *args, **kwargs):
            if self._inside:  # A step that calls itself: lowered already.
                return original(*args, **kwargs)
            restore = rates.lower(optimizer)
            self._inside = True
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False
                restore()

        super().__init__(optimizer, around)
