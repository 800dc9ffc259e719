"""Puts a clip order on the weights: all of it or none, and checks that it took.

What is multiplied follows from the layer: rows of the projections and their biases; behind a query-key norm the gains;
in MLA also the queries' rotary rows, by both factors. Where the optimizer keeps a float32 master, the master is scaled
and the working copy is its rounding; a slice of a master and the working copy are each scaled by themselves, so that
the working copies of all ranks stay equal. Nothing else of the optimizer's state is touched.
"""

import dataclasses
import logging
import math

import torch

from gyrostat import masters, selfcheck
from gyrostat._abi import APPLIED, FAILED, REFUSED
from gyrostat.scaling import Part, Rows, scale


@dataclasses.dataclass
class Write:
    """Scales rows of one parameter."""

    param: Part
    master: Part  # None: the narrow values are all there is.
    rows: Rows

    def apply(self):
        if self.master is None or self.master.tensor is self.param.tensor:
            scale(self.param, self.rows)
        elif self.master.whole and self.param.whole:
            scale(self.master, self.rows, copy=self.param.tensor)
        else:
            scale(self.master, self.rows)
            scale(self.param, self.rows)


class Actuator:
    """Of one model. Training thread only."""

    def __init__(self, probes, optimizers, fuse, slices=None):
        """probes: {layer index: LayerProbe}. slices: slices.Slices of the model."""
        self._probes = probes
        self._slices = slices
        self._masters = masters.Masters(optimizers)
        self._fuse = fuse
        self._unchecked = set(probes)  # Layers whose next clip is their first.
        self._returns = {}  # Layer index → selfcheck.Return, while check (b) is open.
        self._steps_seen = 0
        self._drifting = set()  # Layers whose queries alone were scaled (q_only).
        self._masters_trouble = {}  # Layer index → why its masters are not known, or "".
        self.disabled = ""  # Why clips are refused for good.

    def apply(self, q, k):
        """Scales query heads and key heads: lists of (layer, head, factor). Returns (outcome, reason).

        APPLIED with "", REFUSED (nothing was changed) or FAILED with a sentence.
        """
        if self.disabled:
            return REFUSED, self.disabled
        if self._slices is not None:
            self._slices.refresh()
        try:
            writes = self._plan(q, k)
        except (_Refusal, masters.UnknownMaster) as refusal:
            self._fuse.say(f"a clip was refused: {refusal}")
            return REFUSED, str(refusal)
        checks = self._samples(q, k)
        try:
            with torch.no_grad():
                for write in writes:
                    write.apply()
            self._drifting |= {layer for layer, _, _ in q} - {layer for layer, _, _ in k}
            return self._after(checks)
        except Exception as error:
            self._disable(f"an error while scaling weights: {error}")
            return FAILED, self.disabled

    def _plan(self, q, k):
        """All writes of the order, or a refusal before anything has changed."""
        layers = {}
        for side, heads in enumerate((q, k)):
            for layer_index, head, factor in heads:
                if not 0.0 < factor <= 1.0:
                    raise _Refusal(f"the factor {factor:g} of layer {layer_index} head {head} is outside (0, 1]")
                layers.setdefault(layer_index, ({}, {}))[side][head] = factor
        targets = [target for layer_index, factors in layers.items() for target in self._targets(layer_index, *factors)]
        _forbid_overlap(targets)
        return [Write(part, self._master(part, title), rows) for part, rows, title in targets]

    def _targets(self, layer_index, q, k):
        """What the factors {head: factor} of one layer go on, or a refusal with its reason."""
        layer = self._layer(layer_index, q, k)
        if layer.q_gain is not None:
            return self._gain_targets(layer, q, k)
        if layer.latent:
            # The product of two float32 is exact in Python's floats, and rounded once on the way to the weights.
            both = {head: q.get(head, 1.0) * k.get(head, 1.0) for head in {**q, **k}}
            return layer.q.targets(q, both) + layer.k.targets(k)
        if layer.q.weight is layer.k.weight and layer.q.starts == layer.k.starts:
            # Queries and keys are made by the same rows: once by half of what the logits shall lose.
            return layer.q.targets({head: math.sqrt(q.get(head, 1.0) * k.get(head, 1.0)) for head in {**q, **k}})
        return layer.q.targets(q) + layer.k.targets(k)

    @staticmethod
    def _gain_targets(layer, q, k):
        if not layer.q_gain.flattened and (len({*q.values()}) > 1 or set(k) - {0} or bool(q) != bool(k)):
            raise _Refusal(f"the heads of layer {layer.index} share the gain of {layer.q_gain.title}: the order must "
                           "give the layer one factor for its queries and one for its keys")
        return layer.q_gain.targets(q) + layer.k_gain.targets(k)

    def trouble(self, layer_index):
        """Why no clip may touch a layer, or ""."""
        try:
            layer = self._layer(layer_index, {}, {})
        except _Refusal as refusal:
            return str(refusal)
        if layer_index not in self._masters_trouble:
            self._masters_trouble[layer_index] = self._find_masters(layer)
        return self._masters_trouble[layer_index] or self.disabled

    def _find_masters(self, layer):
        if self._slices is not None:
            self._slices.refresh()
        try:
            for part in (layer.q_gain or layer.q, layer.k_gain or layer.k):
                for tensor, title in part.tensors():
                    if tensor.numel():  # Of a slice, perhaps nothing is here.
                        self._masters.of(tensor, title)
            return ""
        except masters.UnknownMaster as unknown:
            return str(unknown)

    def bound(self):
        """[(title, parameter)] of what clips may scale here and is not sliced. (What is no parameter is made anew at
        every look, and never scaled.)
        """
        parts = [part for probe in self._probes.values() if probe.layer.q is not None
                 for part in (probe.layer.q, probe.layer.k, probe.layer.q_gain, probe.layer.k_gain) if part is not None]
        return [(title, tensor) for part in parts if not getattr(part, "sliced", False)
                for tensor, title in part.tensors() if isinstance(tensor, torch.nn.Parameter)]

    def _layer(self, layer_index, q, k):
        """The layer, if a clip may touch it."""
        probe = self._probes.get(layer_index)
        if probe is None:
            raise _Refusal(f"layer {layer_index} has no attention that was found")
        layer = probe.layer
        for side, part, gain, heads, count in (
                ("q", layer.q, layer.q_gain, q, layer.all_heads or layer.heads),
                ("k", layer.k, layer.k_gain, k, layer.all_kv_heads or layer.kv_heads)):
            if part is None:
                raise _Refusal(f"the Q and K projections of layer {layer_index} are not known")
            if heads and max(heads) >= count:
                raise _Refusal(f"layer {layer_index} has {count} {side} heads, the order names head {max(heads)}")
            trouble = part.trouble() or (gain.trouble() if gain else "")
            if trouble:
                raise _Refusal(trouble)
        if probe.lineage.state is not True:
            raise _Refusal(f"layer {layer_index}: " + (probe.lineage.state or "it has not been seen that the softmax "
                           f"input comes from {layer.q.title}"))
        return layer

    def _master(self, part, title):
        if part.tensor.numel() == 0:  # A slice that holds nothing of it.
            return part
        return self._masters.of(part.tensor, title)

    # The client's own check.

    def _samples(self, q, k):
        """Before the clip, of the head that shrinks most in each layer whose first clip this is: (probe, head, factor
        on its logits, their sizes on the sample, what is scaled).
        """
        key_factors = {(layer, head): factor for layer, head, factor in k}
        deepest = {}
        for layer, head, factor in q:
            whole = factor * key_factors.get((layer, _key_head(self._probes[layer].layer, head)), 1.0)
            if layer in self._unchecked and factor < 1.0 and whole < deepest.get(layer, (1.0,))[0]:
                if selfcheck.can_check(self._probes[layer].layer) and _is_here(self._probes[layer].layer, head):
                    deepest[layer] = (whole, head)
        with torch.no_grad():
            return [(self._probes[layer], head, whole, selfcheck.sizes(self._probes[layer], head),
                     selfcheck.scaled_values(self._probes[layer].layer, head))
                    for layer, (whole, head) in deepest.items()]

    def _after(self, checks):
        with torch.no_grad():
            for probe, head, whole, before, values in checks:
                index = probe.layer.index
                target = probe.layer.q_gain or probe.layer.q
                wide = self._masters.of(target.weight, "") is not None
                wrong = selfcheck.wrong_ratio(before, selfcheck.sizes(probe, head), whole, wide)
                if wrong is not None:
                    self._disable(f"layer {index} head {head}: the clip should have scaled the logits by {whole:.4f}, "
                                  f"a sample shows {wrong:.4f}")
                    return FAILED, self.disabled
                self._unchecked.discard(index)
                self._returns[index] = selfcheck.Return(probe, head, values)
            for check in self._returns.values():
                check.clipped(selfcheck.scaled_values(check.probe.layer, check.head))
        return APPLIED, ""

    def look_back(self, optimizer_steps):
        """Check (b): called at each boundary before new orders, with the number of optimizer steps so far."""
        if optimizer_steps == self._steps_seen or not self._returns:
            self._steps_seen = optimizer_steps
            return
        self._steps_seen = optimizer_steps
        with torch.no_grad():
            for index, check in list(self._returns.items()):
                undone = check.stepped(selfcheck.scaled_values(check.probe.layer, check.head))
                if undone is not None:
                    del self._returns[index]
                if undone:
                    self._disable(f"layer {index} head {check.head}: optimizer steps bring the old weights back; "
                                  "a master copy was missed")

    def qk_ratio(self):
        """The largest rms(W_k) / rms(W_q) of layers whose queries alone were scaled, as a 0-dim tensor; None: of none.
        The price of q_only: W_q shrinks, W_k does not.
        """
        ratios = []
        with torch.no_grad():
            for index in sorted(self._drifting):
                layer = self._probes[index].layer
                if layer.q is not None and selfcheck.can_check(layer):
                    q, k = (p.weight.detach().index_select(p.out_dim, p.rows_of(range(p.heads))).float()
                            for p in (layer.q, layer.k))
                    ratios.append(k.square().mean().sqrt() / q.square().mean().sqrt())
        return torch.stack([ratio.to(ratios[0].device) for ratio in ratios]).amax() if ratios else None

    def forget(self):
        """The weights got another history: nothing kept of them holds any more."""
        self._returns.clear()
        self._masters_trouble.clear()

    def _disable(self, reason):
        if not self.disabled:
            self.disabled = f"qk_clip is switched off for this run: {reason}"
            self._fuse.say(self.disabled, level=logging.CRITICAL)


def _key_head(layer, head):
    """The head that a query head's K factor is under, in an order."""
    if layer.latent:
        return head
    if layer.q_gain is not None and not layer.q_gain.flattened:
        return 0
    return head // layer.group


def _is_here(layer, head):
    return 0 <= head - layer.q.first_head < layer.q.heads


def _forbid_overlap(targets):
    """Refuses where one element would be scaled twice: rows that two parts of the order share, or tied tensors."""
    seen = {}
    for part, rows, title in targets:
        numbers = set(rows.numbers.tolist())
        place = (part.tensor.data_ptr() or id(part.tensor), rows.dim)
        if seen.setdefault(place, set()) & numbers:
            raise _Refusal(f"rows of {title} serve queries and keys, or two layers: they cannot be scaled for one")
        seen[place] |= numbers


class _Refusal(Exception):
    """Nothing was changed; the text says why."""
