"""Puts a clip order on the weights: all of it or none, and checks that it took.

Rows are multiplied in float32 and rounded once to the working type; where the optimizer keeps a float32 master, the
master is scaled and the working rows are its rounding. Nothing else of the optimizer's state is touched.

The check (protocol.md section 8), at the first clip of each layer: (a) on a kept sample of the projections' input the
head's logits shrink by exactly the ordered factor; (b) after the next optimizer step the scaled rows have not gone
back more than halfway towards what they were, else a master was missed. One failure ends clipping for the run.
"""

import dataclasses
import logging

import torch

from gyrostat import masters
from gyrostat._abi import APPLIED, FAILED, REFUSED

_RATIO_TOLERANCE = 0.01
_RATIO_TOLERANCE_NARROW = 0.02  # Without a float32 master the rows are rounded.
_CHECKS_MAX = 8  # Clips of a layer after which (b) is given up as impossible to judge.


@dataclasses.dataclass
class _Write:
    """Scales rows of one parameter."""

    param: torch.Tensor
    master: torch.Tensor  # None: the narrow values are all there is.
    dim: int
    rows: torch.Tensor
    factors: torch.Tensor  # float32, one per row.

    def apply(self):
        target = self.param.detach()
        source = target if self.master is None else self.master.detach()
        shape = [1] * source.dim()
        shape[self.dim] = -1
        scaled = source.index_select(self.dim, self.rows).float() * self.factors.view(shape)
        if self.master is not None and self.master is not self.param:
            source.index_copy_(self.dim, self.rows, scaled.to(source.dtype))
        target.index_copy_(self.dim, self.rows, scaled.to(target.dtype))


@dataclasses.dataclass
class _Kept:
    """What check (b) needs of one head's query rows."""

    layer: object
    head: int
    before: torch.Tensor
    after: torch.Tensor
    shrink: float  # 1 - factor.
    steps: int  # Optimizer steps passed when it was kept.


class Actuator:
    """Of one model. Training thread only."""

    def __init__(self, probes, optimizers, fuse):
        """probes: {layer index: LayerProbe}."""
        self._probes = probes
        self._masters = masters.Masters(optimizers)
        self._fuse = fuse
        self._open = dict.fromkeys(probes, _CHECKS_MAX)  # Layers to check at their next clip, with tries left.
        self._kept = {}  # Layer index → _Kept, waiting for (b).
        self.disabled = ""  # Why clips are refused for good.

    def apply(self, q, k, optimizer_steps):
        """Scales query heads and key heads: lists of (layer, head, factor). Returns (outcome, reason).

        APPLIED with "", REFUSED (nothing was changed) or FAILED with a sentence.
        """
        if self.disabled:
            return REFUSED, self.disabled
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
        except Exception as error:
            self._disable(f"an error while scaling weights: {error}")
            return FAILED, self.disabled
        return self._after(checks, optimizer_steps)

    def _plan(self, q, k):
        """All writes of the order, or a refusal before anything has changed."""
        by_target = {}
        for side, heads in (("q", q), ("k", k)):
            for layer_index, head, factor in heads:
                projection = self._projection(layer_index, side, head)
                if not 0.0 < factor <= 1.0:
                    raise _Refusal(f"the factor {factor:g} of layer {layer_index} head {head} is outside (0, 1]")
                if factor != 1.0:
                    by_target.setdefault((layer_index, side), (projection, []))[1].append((head, factor))
        writes = []
        for projection, heads in by_target.values():
            rows = projection.rows_of([head for head, _ in heads])
            factors = torch.tensor([factor for _, factor in heads], dtype=torch.float32, device=rows.device)
            factors = factors.repeat_interleave(projection.width)
            for name, dim in ((projection.weight_name, projection.out_dim), (projection.bias_name, 0)):
                if name:
                    param = getattr(projection.module, name)
                    title = f"{projection.title}.{name}"
                    writes.append(_Write(param, self._masters.of(param, title), dim, rows, factors))
        return writes

    def _projection(self, layer_index, side, head):
        probe = self._probes.get(layer_index)
        if probe is None:
            raise _Refusal(f"layer {layer_index} has no attention that was found")
        projection = getattr(probe.layer, side)
        if projection is None:
            raise _Refusal(f"the Q and K projections of layer {layer_index} are not known")
        if head >= projection.heads:
            raise _Refusal(f"layer {layer_index} has {projection.heads} {side} heads, the order names head {head}")
        trouble = projection.trouble()
        if trouble:
            raise _Refusal(trouble)
        if probe.lineage.state is not True:
            raise _Refusal(f"layer {layer_index}: " + (probe.lineage.state or "it has not been seen that the softmax "
                           f"input comes from {probe.layer.q.title}"))
        return projection

    # The client's own check.

    def _samples(self, q, k):
        """Before the clip: (probe, head, factor, logits of the sample, rows) of one head per unchecked layer."""
        key_factors = {(layer, head): factor for layer, head, factor in k}
        deepest = {}
        for layer, head, factor in q:
            probe = self._probes[layer]
            key_head = head // (probe.layer.heads // probe.layer.kv_heads)
            whole = factor * key_factors.get((layer, key_head), 1.0)
            due = layer in self._open and layer not in self._kept
            if due and factor < 1.0 and whole < deepest.get(layer, (1.0,))[0]:
                deepest[layer] = (whole, head, factor)
        with torch.no_grad():
            return [(self._probes[layer], head, whole, factor, self._sample_size(self._probes[layer], head),
                     self._query_rows(self._probes[layer], head).clone())
                    for layer, (whole, head, factor) in deepest.items()]

    @staticmethod
    def _sample_size(probe, head):
        """Frobenius norm of the head's logits on the kept sample, from the weights as they are now."""
        layer = probe.layer
        queries = layer.q.of_head(head, probe.sample)
        keys = layer.k.of_head(head // (layer.heads // layer.kv_heads), probe.sample)
        return float((queries.double() @ keys.double().t()).norm())

    @staticmethod
    def _query_rows(probe, head):
        projection = probe.layer.q
        return projection.weight.detach().index_select(projection.out_dim, projection.rows_of([head])).double()

    def _after(self, checks, optimizer_steps):
        with torch.no_grad():
            for probe, head, whole, factor, before, rows in checks:
                index = probe.layer.index
                after = self._sample_size(probe, head)
                ratio = after / before if before > 0 else whole
                wide = self._masters.of(probe.layer.q.weight, "") is not None
                if not abs(ratio / whole - 1) <= (_RATIO_TOLERANCE if wide else _RATIO_TOLERANCE_NARROW):
                    self._disable(f"layer {index} head {head}: the clip should have scaled the logits by {whole:.4f}, "
                                  f"a sample shows {ratio:.4f}")
                    return FAILED, self.disabled
                self._kept[index] = _Kept(probe, head, rows, self._query_rows(probe, head), 1 - factor,
                                          optimizer_steps)
        return APPLIED, ""

    def look_back(self, optimizer_steps):
        """Check (b), once an optimizer step has passed since the clip. Called before new orders are applied.

        It is judged only where the update across the rows is small against the clip (a quarter): a larger update could
        undo or deepen the clip by itself. What cannot be judged is tried again at the layer's next clips.
        """
        for index in [i for i, kept in self._kept.items() if kept.steps < optimizer_steps]:
            kept = self._kept.pop(index)
            moved = self._query_rows(kept.layer, kept.head) - kept.after
            size = float(kept.before.square().sum())
            back = float((moved * kept.before).sum()) / size if size > 0 else 0.0
            across = float((moved - back * kept.before).norm()) / size**0.5 if size > 0 else float("inf")
            self._open[index] -= 1
            if across <= 0.25 * kept.shrink or self._open[index] == 0:
                del self._open[index]
            if across <= 0.25 * kept.shrink and back > 0.5 * kept.shrink:
                self._disable(f"layer {index} head {kept.head}: an optimizer step brought the old weights back; "
                              "a master copy was missed")

    def forget(self):
        """The weights got another history: nothing kept of them holds any more."""
        self._kept.clear()

    def _disable(self, reason):
        if not self.disabled:
            self.disabled = f"qk_clip is switched off for this run: {reason}"
            self._fuse.say(self.disabled, level=logging.CRITICAL)


class _Refusal(Exception):
    """Nothing was changed; the text says why."""
