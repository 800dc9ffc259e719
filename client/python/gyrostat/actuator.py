"""Puts a clip order on the weights: all of it or none, and checks that it took.

Rows are multiplied in float32 and rounded once to the working type; where the optimizer keeps a float32 master, the
master is scaled and the working rows are its rounding. Nothing else of the optimizer's state is touched.

The check (protocol.md section 8), at the first clip of each layer: (a) on a kept sample of the projections' input
the head's logits shrink by exactly the ordered factor; (b) the optimizer steps that follow do not bring the scaled
rows back more than halfway, else a master was missed. One failure ends clipping for the run.
"""

import dataclasses
import logging

import torch

from gyrostat import masters
from gyrostat._abi import APPLIED, FAILED, REFUSED

_RATIO_TOLERANCE = 0.01
_RATIO_TOLERANCE_NARROW = 0.02  # Without a float32 master the rows are rounded.


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


class _Return:
    """Check (b) of one head: whether optimizer steps bring back what clips took away.

    Between two boundaries the query rows go from w to f w (the clip; f = 1 where there was none) and by the optimizer
    step to w', and y = <w' - f w, w> / <w, w> is the growth of the step if the clip holds, but 1 - f more if it is
    undone. One step cannot tell the two apart where the rows grow as fast as they are clipped, so the slope of y over
    1 - f is estimated from several: 0 holds, 1 undone, decided once 1/2 lies four standard errors away (the errors are
    made from few points). Clips that are all alike cannot tell a slope from a constant and decide nothing.
    """

    _POINTS_MIN, _POINTS_MAX = 4, 16
    _ERRORS = 4.0
    _SPREAD_MIN = 0.1  # Standard deviation of 1 - f, against its largest value.

    def __init__(self, probe, head, before):
        self.probe, self.head = probe, head
        self._before = before  # Rows at the last boundary, before its clip.
        self._after = before  # And after it.
        self._points = []

    def clipped(self, rows):
        """The clip of this boundary left these rows."""
        self._after = rows

    def stepped(self, rows):
        """An optimizer step made these rows. Returns True (undone), False (holds, or will never be known) or None."""
        size = float(self._before.square().sum())
        if size > 0:
            shrink = 1 - float((self._after * self._before).sum()) / size
            self._points.append((shrink, float(((rows - self._after) * self._before).sum()) / size))
        self._before = self._after = rows
        return self._verdict()

    def _verdict(self):
        n = len(self._points)
        if n < self._POINTS_MIN:
            return None
        mean_x, mean_y = (sum(point[i] for point in self._points) / n for i in (0, 1))
        spread = sum((x - mean_x) ** 2 for x, _ in self._points)
        if spread > n * (self._SPREAD_MIN * max(x for x, _ in self._points)) ** 2:
            slope = sum((x - mean_x) * (y - mean_y) for x, y in self._points) / spread
            residue = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in self._points)
            error = (residue / (n - 2) / spread) ** 0.5
            if abs(slope - 0.5) > self._ERRORS * error:
                return slope > 0.5
        return None if n < self._POINTS_MAX else False


class Actuator:
    """Of one model. Training thread only."""

    def __init__(self, probes, optimizers, fuse):
        """probes: {layer index: LayerProbe}."""
        self._probes = probes
        self._masters = masters.Masters(optimizers)
        self._fuse = fuse
        self._unchecked = set(probes)  # Layers whose next clip is their first.
        self._returns = {}  # Layer index → _Return, while (b) is open.
        self._steps_seen = 0
        self.disabled = ""  # Why clips are refused for good.

    def apply(self, q, k):
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
            return self._after(checks)
        except Exception as error:
            self._disable(f"an error while scaling weights: {error}")
            return FAILED, self.disabled

    def _plan(self, q, k):
        """All writes of the order, or a refusal before anything has changed."""
        by_target = {}
        for side, heads in (("q", q), ("k", k)):
            for layer_index, head, factor in heads:
                if not 0.0 < factor <= 1.0:
                    raise _Refusal(f"the factor {factor:g} of layer {layer_index} head {head} is outside (0, 1]")
                by_target.setdefault((layer_index, side), []).append((head, factor))
        writes = []
        for (layer_index, side), heads in by_target.items():
            projection = self._projection(layer_index, side, max(head for head, _ in heads))
            heads = [(head, factor) for head, factor in heads if factor != 1.0]
            if heads:
                writes += self._writes(projection, heads)
        return writes

    def _writes(self, projection, heads):
        rows = projection.rows_of([head for head, _ in heads])
        factors = torch.tensor([factor for _, factor in heads for _ in range(projection.width)],
                               dtype=torch.float32, device=rows.device)
        return [_Write(getattr(projection.module, name),
                       self._masters.of(getattr(projection.module, name), f"{projection.title}.{name}"),
                       dim, rows, factors)
                for name, dim in ((projection.weight_name, projection.out_dim), (projection.bias_name, 0)) if name]

    def _projection(self, layer_index, side, head_max):
        """The projection to scale, or a refusal with its reason."""
        probe = self._probes.get(layer_index)
        if probe is None:
            raise _Refusal(f"layer {layer_index} has no attention that was found")
        projection = getattr(probe.layer, side)
        if projection is None:
            raise _Refusal(f"the Q and K projections of layer {layer_index} are not known")
        if head_max >= projection.heads:
            raise _Refusal(f"layer {layer_index} has {projection.heads} {side} heads, the order names head {head_max}")
        trouble = projection.trouble()
        if trouble:
            raise _Refusal(trouble)
        if probe.lineage.state is not True:
            raise _Refusal(f"layer {layer_index}: " + (probe.lineage.state or "it has not been seen that the softmax "
                           f"input comes from {probe.layer.q.title}"))
        return projection

    # The client's own check.

    def _samples(self, q, k):
        """Before the clip, of the head that shrinks most in each layer whose first clip this is: (probe, head, factor
        on its logits, size of its logits on the sample, its query rows).
        """
        key_factors = {(layer, head): factor for layer, head, factor in k}
        deepest = {}
        for layer, head, factor in q:
            probe = self._probes[layer]
            key_head = head // (probe.layer.heads // probe.layer.kv_heads)
            whole = factor * key_factors.get((layer, key_head), 1.0)
            if layer in self._unchecked and factor < 1.0 and whole < deepest.get(layer, (1.0,))[0]:
                deepest[layer] = (whole, head)
        with torch.no_grad():
            return [(self._probes[layer], head, whole, self._sample_size(self._probes[layer], head),
                     self._query_rows(self._probes[layer], head))
                    for layer, (whole, head) in deepest.items()]

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

    def _after(self, checks):
        with torch.no_grad():
            for probe, head, whole, before, rows in checks:
                index = probe.layer.index
                after = self._sample_size(probe, head)
                ratio = after / before if before > 0 else whole
                wide = self._masters.of(probe.layer.q.weight, "") is not None
                if not abs(ratio / whole - 1) <= (_RATIO_TOLERANCE if wide else _RATIO_TOLERANCE_NARROW):
                    self._disable(f"layer {index} head {head}: the clip should have scaled the logits by {whole:.4f}, "
                                  f"a sample shows {ratio:.4f}")
                    return FAILED, self.disabled
                self._unchecked.discard(index)
                self._returns[index] = _Return(probe, head, rows)
            for check in self._returns.values():
                check.clipped(self._query_rows(check.probe, check.head))
        return APPLIED, ""

    def look_back(self, optimizer_steps):
        """Check (b): called at each boundary before new orders, with the number of optimizer steps so far."""
        if optimizer_steps == self._steps_seen or not self._returns:
            self._steps_seen = optimizer_steps
            return
        self._steps_seen = optimizer_steps
        with torch.no_grad():
            for index, check in list(self._returns.items()):
                undone = check.stepped(self._query_rows(check.probe, check.head))
                if undone is not None:
                    del self._returns[index]
                if undone:
                    self._disable(f"layer {index} head {check.head}: optimizer steps bring the old weights back; "
                                  "a master copy was missed")

    def forget(self):
        """The weights got another history: nothing kept of them holds any more."""
        self._returns.clear()

    def _disable(self, reason):
        if not self.disabled:
            self.disabled = f"qk_clip is switched off for this run: {reason}"
            self._fuse.say(self.disabled, level=logging.CRITICAL)


class _Refusal(Exception):
    """Nothing was changed; the text says why."""
