"""Whether what enters the softmax really is what the Q and K projections made.

Names are a guess. Before a weight is scaled, the energy of each head (sum of squares over batch, tokens and width)
of the projection's output is compared with that of the operand of the score product. A rotary embedding keeps it, a
constant scale multiplies all heads alike; an unknown norm, another row layout, a wrong number of heads or another
mapping of query to key heads do not agree by chance.

Where a query-key norm is known, what it got is compared with the projection and what it made with the operand. In MLA
the rotary part is compared apart, and of a key only the part that the heads do not share.
"""

import torch

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_TOLERANCE_NARROW = 1e-2  # bfloat16 and float16 outputs, summed over thousands of entries.


def _energy(by_head):
    """[heads] float32 of values [..., heads, width]."""
    square = by_head.detach().float().square()
    return square.sum(dim=tuple(range(square.dim() - 2)) + (-1,))


def row_energy(projection, output):
    """[heads] float32 of a projection's output [..., rows]; of MLA's queries [2 heads], the rotary parts last."""
    energy = _energy(projection.by_head(output))
    return torch.cat([energy, _energy(projection.rope_by_head(output))]) if projection.rope_starts else energy


def operand_energies(operand, heads):
    """The [heads] energies that an operand of a score product may mean, one per dimension that can count heads.

    Layouts: [B, H, T, D] or transposed, [B, T, H, D], [B * H, T, D], [B, Hkv, H / Hkv, T, D].
    """
    x = operand.detach().float().square()
    candidates = []
    if x.dim() == 3 and x.shape[0] % heads == 0:
        candidates.append(x.reshape(-1, heads, x[0].numel()).sum(dim=(0, 2)))
    if x.dim() == 5 and x.shape[1] * x.shape[2] == heads:
        candidates.append(x.flatten(1, 2).sum(dim=(0, 2, 3)))
    if x.dim() == 4:
        candidates += [x.sum(dim=[d for d in range(4) if d != dim]) for dim in (1, 2) if x.shape[dim] == heads]
    return candidates


def _norm_energies(gain, x):
    """The [heads] energies that a norm's input or output may mean: its heads stand before the width or the tokens."""
    x = x.unflatten(-1, (gain.heads, gain.width)) if gain.flattened else x
    square = x.float().square()
    return [square.sum(dim=[d for d in range(x.dim()) if d != dim])
            for dim in (x.dim() - 2, x.dim() - 3) if dim >= 0 and x.shape[dim] == gain.heads]


def latent_energies(operand, heads, nope, rope):
    """Of MLA's operand, whose last dimension holds both parts in either order and may be transposed: energies
    [2 heads], the rotary parts last."""
    candidates = []
    for x in (operand, operand.transpose(-1, -2)):
        if x.shape[-1] != nope + rope:
            continue
        for plain, rotary in ((x[..., :nope], x[..., nope:]), (x[..., rope:], x[..., :rope])):
            pairs = zip(operand_energies(plain, heads), operand_energies(rotary, heads))
            candidates += [torch.cat(pair) for pair in pairs]
    return candidates


def agrees(rows, candidates, dtype):
    """Whether some candidate is `rows` times one positive constant. None: `rows` is zero, nothing can be told."""
    if not bool((rows > 0).all()) or not bool(torch.isfinite(rows).all()):
        return None
    tolerance = _TOLERANCE.get(dtype, _TOLERANCE_NARROW)
    for candidate in candidates:
        ratio = candidate / rows
        low, high = float(ratio.min()), float(ratio.max())
        if low > 0 and high - low <= tolerance * high:
            return True
    return False


class Lineage:
    """Of one layer. `state` is None (not seen yet), True, or a sentence that says what does not fit."""

    _TRIES = 64  # Forwards to look at before giving up: a projection may start at zero.

    def __init__(self, layer):
        self._layer = layer
        self._tries = 0
        self._rows = [None, None]  # Energies of the projections' rows, of queries and keys.
        self._made = [None, None]  # What enters the score product: the same, or what a norm made of it.
        self._odd = ""
        self.state = None

    def begin(self):
        """A forward of the layer starts."""
        self._rows, self._made, self._odd = [None, None], [None, None], ""

    def projected(self, weight, output):
        """A linear map with this weight gave `output`."""
        for side, projection in enumerate((self._layer.q, self._layer.k)):
            if weight is projection.weight:
                self._rows[side] = row_energy(projection, output)
                if self._gain(side) is None:
                    self._made[side] = self._rows[side]

    def normed(self, side, values, output):
        """The query norm (side 0) or the key norm (1) made `output` of `values`."""
        gain = self._gain(side)
        before, after = (_norm_energies(gain, x) for x in (values, output))
        rows = self._rows[side]
        chosen = [i for i, energy in enumerate(before) if rows is not None and agrees(rows, [energy], values.dtype)]
        if not chosen:
            self._odd = f"{gain.title} does not normalize what {self._projection(side).title} makes head by head"
        elif not gain.learn(values, output):
            self._odd = f"{gain.title} is no norm that is known: what it makes is not its gain times a normalized input"
        else:
            self._made[side] = after[chosen[0]]

    def scored(self, queries, keys):
        """These operands made the scores (None: no product of their shape was seen)."""
        if queries is None:
            verdict = "no product of queries and keys was seen before the softmax"
        elif self._odd:
            verdict = self._odd
        elif self._made[0] is None or self._made[1] is None:
            verdict = self._unseen()
        else:
            verdict = self._compare(queries, keys)
        self._tries += 1
        if verdict is True or (verdict and self._tries >= self._TRIES):
            self.state = verdict

    def _unseen(self):
        layer = self._layer
        if self._rows[0] is None or self._rows[1] is None:
            return f"{layer.q.title} or {layer.k.title} was not seen being applied"
        return f"{layer.q_gain.title} or {layer.k_gain.title} was not seen being applied"

    def _gain(self, side):
        return (self._layer.q_gain, self._layer.k_gain)[side]

    def _projection(self, side):
        return (self._layer.q, self._layer.k)[side]

    def _compare(self, queries, keys):
        layer = self._layer
        rows_q, rows_k = self._made
        if layer.latent:
            nope, rope = layer.q.width, layer.q.rope_width
            q = agrees(rows_q, latent_energies(queries, layer.heads, nope, rope), queries.dtype)
            halves = [both[: layer.heads] for both in latent_energies(keys, layer.heads, nope, rope)]
            k = agrees(rows_k, halves, keys.dtype)
        else:
            group = layer.heads // layer.kv_heads  # Of what is here.
            q = agrees(rows_q, operand_energies(queries, layer.heads), queries.dtype)
            k = agrees(rows_k.repeat_interleave(group), operand_energies(keys, layer.heads), keys.dtype)
            if not k and group > 1:
                k = agrees(rows_k, operand_energies(keys, layer.kv_heads), keys.dtype) or k
        if q and k:
            return True
        if q is None or k is None:
            return f"{layer.q.title} or {layer.k.title} makes only zeros"
        side = layer.k.title if q else layer.q.title
        return (f"what enters the softmax is not what {side} makes head by head "
                "(a norm, an adapter, or another layout lies between)")
