"""DeepNorm's alpha of a running post-norm model, and beta, put on the model (protocol.md section 7, methods.md 4).

x = LN(alpha x + G(x)). Raising alpha changes the function, which is its point, so it is ramped: geometrically, over 50
boundaries by default, evaluated by every rank from the boundary alone, in integers and one product, as
daemon/remedy/deepnorm.h does. The model must read alpha from a tensor: a Python float would be baked into compiled and
captured graphs. What was written is read back; a model that shows another alpha ends it with a critical record.
"""

import dataclasses
import logging
import math

import torch

from gyrostat import masters, ticks
from gyrostat.actuator import Write
from gyrostat.scaling import Part, Rows

RAMP_DEFAULT, RAMP_MAX = 50, 200  # Boundaries: slower does not rescue.
STEP_MAX = 5.0  # |delta ln alpha| <= ln 5 in one order.
BETA_FACTOR_MIN = 0.1


@dataclasses.dataclass(frozen=True)
class Ramp:
    start: float  # Up to boundary `first` ...
    to: float  # ... and from `first` + `length` on, exactly.
    first: int
    length: int

    def at(self, boundary):
        gone = boundary - self.first
        if gone >= self.length and (gone > 0 or self.length == 0):
            return self.to
        if gone <= 0:
            return self.start
        low, high = min(self.start, self.to), max(self.start, self.to)
        left = self.length - gone if self.to > self.start else gone  # From the larger end: exp_minus only shrinks.
        shrunk = high * ticks.exp_minus(_distance(low, high) * left // self.length)
        return min(max(shrunk, low), high)


def _distance(a, b):
    return ticks.ln(max(a, b)) - ticks.ln(min(a, b))


def _is_alpha(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 2.0**-1022


def fold_factor(declared, alpha):
    """At export: W_o, b_o, W_2 and b_2 of a layer times this restore the declared alpha with the same function."""
    if not (_is_alpha(declared) and _is_alpha(alpha)):
        raise ValueError(f"alpha is {alpha}, declared {declared}, wanted finite numbers above 0")
    return torch.tensor(declared / alpha, dtype=torch.float32).item()


def bound(tensors):
    """(set_alpha, get_alpha) for tensors that the model reads alpha from: one 0-dim floating-point tensor for all
    layers, or one for each layer. They are written in place, so graphs that captured them see the new value.
    """
    def of(layer):
        return tensors if isinstance(tensors, torch.Tensor) else tensors[layer]

    for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != 0 or not tensor.is_floating_point():
            raise TypeError("alpha must be bound as 0-dim floating-point tensors, which the model reads in its "
                            "forward: a Python number would be baked into compiled graphs")

    def set_alpha(layer, value):
        with torch.no_grad():
            of(layer).fill_(value)

    return set_alpha, lambda layer: of(layer)


class Alphas:
    """The alpha of each layer. Training thread only; the same on every rank, and part of the checkpoint.

    set_alpha(layer, value) must make the model use `value` from the next forward on; get_alpha(layer) must tell what
    the model will use, as a number or a 0-dim tensor.
    """

    def __init__(self, set_alpha, get_alpha, layers, fuse):
        self._set, self._get, self._fuse = set_alpha, get_alpha, fuse
        self._layers = layers
        self._ramps = {}  # Layer → Ramp.
        self._versions = {}  # Layer → writes so far.
        self._written = {}  # Layer → what was written last.
        self.disabled = ""  # Why alpha is refused for good.

    def trouble(self):
        if self._set is None or self._get is None:
            return ("alpha is not bound: give watch() set_alpha and get_alpha, or gyrostat.alpha.bound() of the "
                    "tensors that the model reads it from")
        return self.disabled

    def version(self, layer):
        return self._versions.get(layer, 0)

    def write(self, layer, to, length, boundary, expected):
        """Empty: alpha of `layer` goes to `to` over `length` boundaries from `boundary` on. Otherwise nothing changed,
        and why.
        """
        if self.trouble():
            return self.trouble()
        if not 0 <= layer < self._layers:
            return f"layer {layer} is foreign, wanted layers below {self._layers}"
        if expected != self.version(layer):
            return f"the order expects version {expected}, the register is at {self.version(layer)}"
        if not _is_alpha(to):
            return f"alpha is {to}, wanted a finite number above 0"
        if not 1 <= length <= RAMP_MAX:
            return f"the ramp is {length} boundaries long, wanted 1 to {RAMP_MAX}"
        last = self._ramps.get(layer)
        if last is not None and boundary < last.first + last.length:
            return f"the last ramp runs until boundary {last.first + last.length}, wanted an order after it"
        start = self._read(layer) if last is None else last.to
        if not _is_alpha(start):
            return f"the model shows an alpha of {start}, wanted a finite number above 0"
        if _distance(start, to) > ticks.ln(STEP_MAX):
            return f"alpha goes from {start:.9g} to {to:.9g}, wanted at most a factor of {STEP_MAX:g}"
        self._ramps[layer] = Ramp(float(start), float(to), boundary, length)
        self._versions[layer] = expected + 1
        return ""

    def advance(self, boundary):
        """Writes what each alpha is at this boundary, where it changed, and reads it back."""
        if self.disabled:
            return
        for layer, ramp in self._ramps.items():
            value = ramp.at(boundary)
            if value != self._written.get(layer):
                self._set(layer, value)
                self._written[layer] = value
                self._check(layer, value)

    def _read(self, layer):
        shown = self._get(layer)
        return float(shown.detach()) if isinstance(shown, torch.Tensor) else float(shown)

    def _check(self, layer, value):
        """A tensor rounds what it is given, once."""
        shown = self._get(layer)
        wanted = value
        if isinstance(shown, torch.Tensor):
            wanted = float(torch.tensor(value, dtype=torch.float64).to(shown.dtype))
        if abs(self._read(layer) - wanted) > 2.0**-20 * abs(wanted):
            self.disabled = (f"deepnorm_alpha is switched off for this run: layer {layer} was given {value:.9g} and "
                             f"the model shows {self._read(layer):.9g}")
            self._fuse.say(self.disabled, level=logging.CRITICAL)

    def state_dict(self):
        return {"ramps": {layer: dataclasses.astuple(ramp) for layer, ramp in self._ramps.items()},
                "versions": dict(self._versions)}

    def load_state_dict(self, state, shift=0):
        """Raises ValueError, KeyError or TypeError for what cannot be such a state. shift: by how much boundaries count
        more now. The next advance() writes the model.
        """
        ramps = {}
        for layer, (start, to, first, length) in state["ramps"].items():
            ramp = Ramp(float(start), float(to), int(first) + shift, int(length))
            if not (_is_alpha(ramp.start) and _is_alpha(ramp.to) and 1 <= ramp.length <= RAMP_MAX
                    and 0 <= int(layer) < self._layers and _distance(ramp.start, ramp.to) <= ticks.ln(STEP_MAX)):
                raise ValueError("an alpha that no order could have made")
            ramps[int(layer)] = ramp
        versions = {int(layer): int(version) for layer, version in state["versions"].items()}
        self._ramps, self._versions, self._written = ramps, versions, {}


@dataclasses.dataclass
class Branch:
    """The weights of one residual layer that beta scales (methods.md section 4.2)."""

    whole: list  # (module, parameter name): W_o, W_1, W_2, a gate's W_3, b_o, b_2; W_v where it stands alone.
    rows: list  # (module, parameter name, first row, count, output dimension): W_v in a fused QKV.


class Beta:
    """A factor on the residual branches' weights, on top of what the model's own initialisation made. Applied once, at
    one boundary; never rises. Training thread only.
    """

    def __init__(self, branches, optimizers):
        self._branches = branches
        self._masters = masters.Masters(optimizers)
        self.value, self.version = 1.0, 0

    def write(self, to, expected):
        """Empty: the weights took `to` / value. Otherwise nothing changed, and why."""
        if expected != self.version:
            return f"the order expects version {expected}, the register is at {self.version}"
        if not (_is_alpha(to) and to <= self.value):
            return f"beta is {to}, wanted above 0 and at most {self.value:.9g}"
        quotient = to / self.value
        if quotient < BETA_FACTOR_MIN:
            return f"beta goes from {self.value:.9g} to {to:.9g}, wanted at most a factor of {1 / BETA_FACTOR_MIN:g}"
        try:
            writes = [Write(part, self._masters.of(part.tensor, title), rows)
                      for part, rows, title in self._targets(quotient)]
        except masters.UnknownMaster as refusal:
            return str(refusal)
        for write in writes:
            write.apply()
        self.value, self.version = float(to), self.version + 1
        return ""

    def _targets(self, factor):
        for branch in self._branches:
            everything = [(module, name, 0, getattr(module, name).shape[0], 0) for module, name in branch.whole]
            for module, name, first, count, dim in everything + branch.rows:
                rows = Rows(torch.arange(first, first + count), torch.full((count,), factor, dtype=torch.float32), dim)
                yield Part(getattr(module, name)), rows, f"{type(module).__name__}.{name}"

    def state_dict(self):
        return {"value": self.value, "version": self.version}

    def load_state_dict(self, state):
        value, version = float(state["value"]), int(state["version"])
        if not 0 < value <= 1:
            raise ValueError("a beta that no order could have made")
        self.value, self.version = value, version
