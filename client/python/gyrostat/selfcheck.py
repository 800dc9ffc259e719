"""The client's own check that a clip took (protocol.md section 8), at the first clip of each layer.

(a) On a kept sample of the projections' input the head's logits shrink by exactly the ordered factor; (b) the optimizer
steps that follow do not bring the scaled values back more than halfway, else a master was missed. Both compute with
the weights that are here: where only a slice of them is, there is no check.
"""

import torch

_RATIO_TOLERANCE = 0.01
_RATIO_TOLERANCE_NARROW = 0.02  # Without a float32 master the rows are rounded.


def can_check(layer):
    """Whether the layer's logits can be computed here."""
    return not (layer.q.sliced or layer.k.sliced)


def scaled_values(layer, head):
    """What a clip of this query head multiplies, flat, in float64: its rows, or its part of the effective gain."""
    if layer.q_gain is not None:
        return layer.q_gain.effective(head)
    index = head - layer.q.first_head
    rows = layer.q.rows_of([index])
    return layer.q.weight.detach().index_select(layer.q.out_dim, rows).double()


def sizes(probe, head):
    """Numbers that a clip of this query head multiplies by its factor: Frobenius norms on the kept sample, from the
    weights as they are now. Of its logits; in MLA of the logits of the part without rotary embedding and of the rotary
    queries, whose key no clip touches.
    """
    layer = probe.layer
    index = head - layer.q.first_head
    key_index = index if layer.latent else head // layer.group - layer.k.first_head
    queries, keys = (_values(projection, gain, sample, at)
                     for projection, gain, sample, at in zip((layer.q, layer.k), (layer.q_gain, layer.k_gain),
                                                             probe.samples, (index, key_index)))
    found = [float((queries.double() @ keys.double().t()).norm())]
    if layer.latent:
        found.append(float(layer.q.rope_output(probe.samples[0], index).double().norm()))
    return found


def _values(projection, gain, sample, index):
    """[n, width] float32 of one head: what the projection makes of the sample, behind its norm."""
    if gain is None:
        return projection.output(sample, [index])[:, 0]
    if not gain.flattened:
        return gain.normed(projection.output(sample, [index]))[:, 0]
    return gain.normed(projection.output(sample, range(projection.heads)))[:, index]


def wrong_ratio(before, after, whole, wide):
    """The first ratio of `after` to `before` that is not `whole`, or None."""
    tolerance = _RATIO_TOLERANCE if wide else _RATIO_TOLERANCE_NARROW
    for old, new in zip(before, after):
        ratio = new / old if old > 0 else whole
        if not abs(ratio / whole - 1) <= tolerance:
            return ratio
    return None


class Return:
    """Check (b) of one head: whether optimizer steps bring back what clips took away.

    Between two boundaries the query rows (or the gain) go from w to f w (the clip; f = 1 where there was none) and by
    the optimizer step to w', and y = <w' - f w, w> / <w, w> is the growth of the step if the clip holds, but 1 - f more
    if it is undone. One step cannot tell the two apart where the rows grow as fast as they are clipped, so the slope of
    y over 1 - f is estimated from several: 0 holds, 1 undone, decided once 1/2 lies four standard errors away (the
    errors are made from few points). Clips that are all alike cannot tell a slope from a constant and decide nothing.
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
