"""The gain of a query-key norm, which is what a clip scales where there is one.

Behind a per-head norm a scaled projection row does nothing, behind one over all heads it raises the other heads
(methods.md section 2.7). How the norm applies its gain, as w or as 1 + w, is not a matter of names: it is seen from
what went in and what came out.
"""

import dataclasses

import torch

from gyrostat.scaling import Part, Rows
from gyrostat.whole import whole

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_TOLERANCE_NARROW = 3e-2  # bfloat16 and float16: weights, input and output are rounded.
_EPS = ("eps", "variance_epsilon", "epsilon", "norm_eps")


@dataclasses.dataclass
class Gain:
    """Of the queries or the keys of one layer. Per head: `width` entries that all heads share; flattened: as many for
    each head.
    """

    module: torch.nn.Module
    weight_name: str
    bias_name: str  # "" where the norm has none.
    heads: int
    width: int
    flattened: bool
    title: str
    unit_offset: bool = None  # None until it was seen.
    centred: bool = False  # LayerNorm: the mean is taken away.
    first_head: int = 0  # Flattened, in a tensor-parallel job: the head that entry 0 belongs to.

    @property
    def weight(self):
        return getattr(self.module, self.weight_name)

    @property
    def bias(self):
        return getattr(self.module, self.bias_name) if self.bias_name else None

    def tensors(self):
        """[(what clips scale here, title)]."""
        return [(getattr(self.module, name), f"{self.title}.{name}") for name in (self.weight_name, self.bias_name)
                if name]

    def trouble(self):
        """Why this gain may not be scaled, or "" when it may."""
        wanted = self.heads * self.width if self.flattened else self.width
        for name in filter(None, (self.weight_name, self.bias_name)):
            parameter = self.module._parameters.get(name)
            if parameter is None:
                return f"{self.title}.{name} is not a plain parameter"
            if not whole(parameter):
                return f"{self.title}.{name} is a {type(parameter).__name__}, which may be in part on other ranks"
            if tuple(parameter.shape) != (wanted,):
                return f"{self.title}.{name} is {list(parameter.shape)}, wanted {wanted} entries"
        return ""

    def learn(self, x, y):
        """Finds out how the norm that made `y` from `x` applies its gain. Returns whether it could."""
        tolerance = _TOLERANCE.get(y.dtype, _TOLERANCE_NARROW)
        x, y = x.detach().float(), y.detach().float()
        size = float(y.norm())
        if not size > 0:
            return False
        errors = {(centred, unit): float((self._apply(x, centred, unit) - y).norm()) / size
                  for centred in (False, True) for unit in (False, True)}
        best = min(errors, key=errors.get)
        if errors[best] > tolerance:
            return False
        self.centred, self.unit_offset = best
        return True

    def _apply(self, x, centred, unit_offset):
        eps = next((getattr(self.module, name) for name in _EPS
                    if isinstance(getattr(self.module, name, None), float)), 1e-6)
        if centred:
            x = x - x.mean(dim=-1, keepdim=True)
        value = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
        value = value * (self.weight.detach().float() + (1.0 if unit_offset else 0.0))
        return value if self.bias is None else value + self.bias.detach().float()

    def normed(self, by_head):
        """[n, heads, width] of the projection, as the norm makes it from the gain as it is now."""
        if not self.flattened:
            return self._apply(by_head, self.centred, self.unit_offset)
        return self._apply(by_head.flatten(1), self.centred, self.unit_offset).view(by_head.shape)

    def effective(self, head):
        """What multiplies the normalised values of a head, in float64."""
        value = self.weight.detach().double() + (1.0 if self.unit_offset else 0.0)
        index = head - self.first_head
        return value[index * self.width : (index + 1) * self.width] if self.flattened else value

    def targets(self, factors):
        """What to multiply for {head: factor}: [(Part, Rows, title)]. Per head, any head's factor is the layer's."""
        if not self.flattened:
            factors = dict(list(factors.items())[:1])
        numbers, values = [], []
        for head, factor in factors.items():
            index = head - self.first_head if self.flattened else 0
            if factor != 1.0 and 0 <= index < self.heads:
                first = index * self.width
                numbers += range(first, first + self.width)
                values += [factor] * self.width
        if not numbers:
            return []
        numbers, values = torch.tensor(numbers, dtype=torch.int64), torch.tensor(values, dtype=torch.float32)
        # A bias is added as it is: no offset.
        return [(Part(getattr(self.module, name)), Rows(numbers, values, 0, unit), f"{self.title}.{name}")
                for name, unit in ((self.weight_name, bool(self.unit_offset)), (self.bias_name, False)) if name]
