"""Whether what enters the softmax really is what the Q and K projections made.

Names are a guess. Before a weight is scaled, the energy of each head (sum of squares over batch, tokens and width)
of the projection's output is compared with that of the operand of the score product. A rotary embedding keeps it, a
constant scale multiplies all heads alike; a query-key norm, another row layout, a wrong number of heads or another
mapping of query to key heads do not agree by chance.
"""

import torch

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_TOLERANCE_NARROW = 1e-2  # bfloat16 and float16 outputs, summed over thousands of entries.


def row_energy(projection, output):
    """[heads] float32 of a projection's output [..., rows]."""
    heads = projection.by_head(output.detach()).float().square()
    return heads.sum(dim=tuple(range(heads.dim() - 2)) + (-1,))


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
        self._q = self._k = None
        self.state = None

    def begin(self):
        """A forward of the layer starts."""
        self._q = self._k = None

    def projected(self, weight, output):
        """A linear map with this weight gave `output`."""
        layer = self._layer
        if weight is layer.q.weight:
            self._q = row_energy(layer.q, output)
        if weight is layer.k.weight:
            self._k = row_energy(layer.k, output)

    def scored(self, queries, keys):
        """These operands made the scores (None: no product of their shape was seen)."""
        layer = self._layer
        if queries is None:
            verdict = "no product of queries and keys was seen before the softmax"
        elif self._q is None or self._k is None:
            verdict = f"{layer.q.title} or {layer.k.title} was not seen being applied"
        else:
            verdict = self._compare(queries, keys)
        self._tries += 1
        if verdict is True or (verdict and self._tries >= self._TRIES):
            self.state = verdict

    def _compare(self, queries, keys):
        layer = self._layer
        group = layer.heads // layer.kv_heads
        q = agrees(self._q, operand_energies(queries, layer.heads), queries.dtype)
        k = agrees(self._k.repeat_interleave(group), operand_energies(keys, layer.heads), keys.dtype)
        if not k and group > 1:
            k = agrees(self._k, operand_energies(keys, layer.kv_heads), keys.dtype) or k
        if q and k:
            return True
        if q is None or k is None:
            return f"{layer.q.title} or {layer.k.title} makes only zeros"
        side = layer.k.title if q else layer.q.title
        return (f"what enters the softmax is not what {side} makes head by head "
                "(a norm, an adapter, or another layout lies between)")
