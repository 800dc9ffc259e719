"""DeepNorm's alpha of a running post-norm model, and beta, put on the model (protocol.md section 7, methods.md 4).

x = LN(alpha x + G(x)). Raising alpha changes the function, which is its point, so orders ramp it; what it is at each
boundary the library says (gyro_register_value), the same on every rank. The model must read alpha from a tensor: a
Python float would be baked into compiled and captured graphs. What the model shows is read back at every boundary and
told to the library, so that ranks whose models differ hold.

At export, either keep gyrostat's state beside the checkpoint, or fold: W_o, b_o, W_2 and b_2 of a layer times
`fold_factor(declared, alpha)` restore the declared alpha with the same function, up to the norm's epsilon.
"""

import dataclasses
import logging
import math

import torch

from gyrostat import masters
from gyrostat.actuator import Write
from gyrostat.scaling import Part, Rows

_ROUNDING = 2.0**-20  # Of a set_alpha that keeps a number of its own.


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
    """The alpha of each layer that is here. Training thread only.

    set_alpha(layer, value) must make the model use `value` from the next forward on; get_alpha(layer) must tell what
    the model will use, as a number or a 0-dim tensor. Layers are numbered over the whole model.
    """

    def __init__(self, set_alpha, get_alpha, layers, fuse):
        """layers: a range of those that are here."""
        self._set, self._get, self._fuse = set_alpha, get_alpha, fuse
        self._layers = layers
        self._wanted = {}  # Layer → what the library said last.
        self.moving = set()  # Layers that an order has named.
        self._wrong = {}  # Layer → what it showed instead.
        self.base = None  # What is declared of all layers, once that is settled: here, or by the checkpoint.
        self.disabled = ""  # Why alpha is refused for good.

    def trouble(self):
        """Why alpha cannot be set here, or ""."""
        if not (callable(self._set) and callable(self._get)):
            return ("alpha is not bound: give watch() set_alpha and get_alpha, or gyrostat.alpha.bound() of the "
                    "tensors that the model reads it from")
        return self.disabled

    def declared(self):
        """(the one alpha that all layers have before any order, ""), or (None, why there is none)."""
        if self.trouble():
            return None, self.trouble()
        if self.base is not None:
            return self.base, ""
        shown = {_number(self._get(layer)) for layer in self._layers}
        if len(shown) > 1:
            return None, f"the layers have alphas from {min(shown):.9g} to {max(shown):.9g}, wanted one for all"
        value = next(iter(shown), None)
        if value is not None and not _is_alpha(value):
            return None, f"the model shows an alpha of {value}, wanted a finite number above 0"
        return value, ""

    @property
    def uneven(self):
        """Whether layers show different alphas: a checkpoint of ours may say what was declared of all."""
        return not self.trouble() and self.base is None and len(
            {_number(self._get(layer)) for layer in self._layers}) > 1

    def settle(self):
        """The client is open: what is declared stays so."""
        self.base = self.declared()[0]

    def shown(self):
        """What the model shows for each layer here: numbers and 0-dim tensors."""
        return [self._get(layer) for layer in self._layers] if not self.trouble() else []

    def moves(self, layers):
        """An order has named these layers: from now on they follow the library."""
        self.moving |= set(layers)

    def check(self, values):
        """values: those of shown(), of the forward before: do they show what was written?"""
        self._wrong.clear()
        for layer, value, kind in zip(self._layers, values, map(_dtype, self.shown())):
            wanted = self._wanted.get(layer, value)
            rounded = float(torch.tensor(wanted, dtype=torch.float64).to(kind)) if kind else wanted
            if not abs(value - rounded) <= _ROUNDING * abs(rounded):
                self._wrong[layer] = value
                self._disable(layer, wanted, value)

    def advance(self, register):
        """Writes what each alpha is from this boundary on, where it changed. register(layer) → what the library says,
        or None. Returns what to tell the library of the layers here, {layer: value}: what it said itself, but for a
        layer that did not show what it was given.
        """
        told = {}
        for layer in self._layers:
            value = register(layer)
            if value is None:
                continue
            if layer in self.moving and value != self._wanted.get(layer):
                self._set(layer, value)
            self._wanted[layer] = value
            told[layer] = self._wrong.get(layer, value)
        return told

    def _disable(self, layer, wanted, value):
        if not self.disabled:
            self.disabled = (f"deepnorm_alpha is switched off for this run: layer {layer} was given {wanted:.9g} and "
                             f"the model shows {value:.9g}")
            self._fuse.say(self.disabled, level=logging.CRITICAL)


def _number(shown):
    return float(shown.detach()) if isinstance(shown, torch.Tensor) else float(shown)


def _dtype(shown):
    return shown.dtype if isinstance(shown, torch.Tensor) else None


@dataclasses.dataclass
class Branch:
    """The weights of one residual layer that beta scales (methods.md section 4.2)."""

    whole: list  # (module, parameter name): W_o, W_1, W_2, a gate's W_3, b_o, b_2; W_v where it stands alone.
    rows: list  # (module, parameter name, first row, count, output dimension): W_v in a fused QKV.


class Betas:
    """A factor on each layer's branch weights, on top of what the model's own initialisation made. Training thread
    only.
    """

    def __init__(self, branches, optimizers):
        """branches: {layer of the whole model: Branch} of those that are here; None: not bound."""
        self._branches = branches
        self._masters = masters.Masters(optimizers)

    def plan(self, changes):
        """(writes, ""): what brings each layer of `changes`, {layer: (from, to)}, to its new beta. (None, why not)."""
        if self._branches is None:
            return None, "beta is not bound: give watch() branches={layer: gyrostat.alpha.Branch(...)}"
        writes = []
        for layer, (old, new) in changes.items():
            if not (_is_alpha(old) and _is_alpha(new) and new <= old):
                return None, f"beta of layer {layer} goes from {old:.9g} to {new:.9g}, wanted above 0 and no rise"
            if layer not in self._branches:
                return None, f"the branch weights of layer {layer} are not bound: see watch(branches=)"
            try:
                writes += [Write(part, self._masters.of(part.tensor, title), rows)
                           for part, rows, title in _targets(self._branches[layer], new / old)]
            except masters.UnknownMaster as refusal:
                return None, str(refusal)
        return writes, ""


def _targets(branch, factor):
    everything = [(module, name, 0, getattr(module, name).shape[0], 0) for module, name in branch.whole]
    for module, name, first, count, dim in everything + list(branch.rows):
        rows = Rows(torch.arange(first, first + count), torch.full((count,), factor, dtype=torch.float32), dim)
        yield Part(getattr(module, name)), rows, f"{type(module).__name__}.{name}"
