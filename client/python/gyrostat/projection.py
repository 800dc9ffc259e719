"""Which rows of which parameter make the queries, or the keys, of each head of one layer."""

import dataclasses

import torch

from gyrostat.scaling import Part, Rows
from gyrostat.whole import whole


@dataclasses.dataclass
class Projection:
    """`starts[h]` is the first of the `width` output rows of head h. For keys, heads are key heads.

    The parameter is looked up at every use, so a module that rebinds it stays right.
    """

    module: torch.nn.Module
    weight_name: str
    bias_name: str  # "" where the projection has none.
    out_dim: int  # The weight's output dimension: 0 for nn.Linear, 1 for the Conv1D of GPT-2.
    starts: tuple
    width: int
    title: str  # For people: "blocks.3.attention.q_proj".
    rope_starts: tuple = ()  # MLA's queries: the first row of each head's rotary part ...
    rope_width: int = 0  # ... and its rows, which `width` does not count.
    first_head: int = 0  # In a tensor-parallel job, the head that starts[0] belongs to; the others are on other ranks.
    parts: dict = dataclasses.field(default_factory=dict)  # {parameter name: scaling.Part}, where a slice is here.

    @property
    def weight(self):
        return getattr(self.module, self.weight_name)

    @property
    def bias(self):
        return getattr(self.module, self.bias_name) if self.bias_name else None

    def tensors(self):
        """[(what clips scale here, title)]."""
        return [(self.parts[name].tensor if name in self.parts else getattr(self.module, name), f"{self.title}.{name}")
                for name in (self.weight_name, self.bias_name) if name]

    @property
    def heads(self):
        return len(self.starts)

    @property
    def sliced(self):
        """Whether some of its elements are on other ranks, so that nothing can be computed with it here."""
        return bool(self.parts)

    def trouble(self):
        """Why rows of this projection may not be scaled in place, or "" when they may."""
        for name in filter(None, (self.weight_name, self.bias_name)):
            if name in self.parts:
                continue
            if self.module._parameters.get(name) is None:
                return f"{self.title}.{name} is not a plain parameter"
            if not whole(self.module._parameters[name]):
                return (f"{self.title}.{name} is a {type(self.module._parameters[name]).__name__}, which may be in "
                        "part on other ranks")
        shape = self.parts[self.weight_name].shape if self.weight_name in self.parts else self.weight.shape
        rows = shape[self.out_dim] if len(shape) == 2 else 0
        wanted = max([start + self.width for start in self.starts]
                     + [start + self.rope_width for start in self.rope_starts])
        if rows < wanted:
            return (f"{self.title}.{self.weight_name} is {list(shape)}, "
                    f"wanted a matrix of at least {wanted} output rows")
        return ""

    def targets(self, factors, rope_factors=None):
        """What to multiply for {head: factor}, numbered over all ranks: [(Part, Rows, title)]. Heads of other ranks and
        factors of 1 ask for nothing. rope_factors: the same for MLA's rotary query rows.
        """
        numbers, values = [], []
        for heads, starts, width in ((factors, self.starts, self.width),
                                     (rope_factors or {}, self.rope_starts, self.rope_width)):
            for head, factor in heads.items():
                index = head - self.first_head
                if factor != 1.0 and 0 <= index < len(starts):
                    numbers += range(starts[index], starts[index] + width)
                    values += [factor] * width
        if not numbers:
            return []
        numbers, values = torch.tensor(numbers, dtype=torch.int64), torch.tensor(values, dtype=torch.float32)
        return [(self.parts.get(name) or Part(getattr(self.module, name)), Rows(numbers, values, dim),
                 f"{self.title}.{name}")
                for name, dim in ((self.weight_name, self.out_dim), (self.bias_name, 0)) if name]

    def rows_of(self, heads):
        """Row numbers of these heads, in order, as an int64 tensor on the weight's device."""
        rows = [self.starts[head] + i for head in heads for i in range(self.width)]
        return torch.tensor(rows, dtype=torch.int64, device=self.weight.device)

    def by_head(self, output):
        """The projection's output [..., rows] as [..., heads, width]."""
        first, count = self.starts[0], self.heads * self.width
        if self.starts == tuple(range(first, first + count, self.width)):
            part = output[..., first : first + count]
        else:
            part = output.index_select(-1, self.rows_of(range(self.heads)).to(output.device))
        return part.reshape(*output.shape[:-1], self.heads, self.width)

    def rope_by_head(self, output):
        """MLA's rotary part of the output, as [..., heads, rope_width]."""
        rows = torch.tensor([start + i for start in self.rope_starts for i in range(self.rope_width)],
                            dtype=torch.int64, device=output.device)
        return output.index_select(-1, rows).reshape(*output.shape[:-1], self.heads, self.rope_width)

    def output(self, inputs, indices):
        """[n, heads, width] of the heads at these places of `starts`, for inputs [n, in], in float32, from the weights
        as they are now.
        """
        return self._output(inputs, self.rows_of(indices)).unflatten(-1, (len(indices), self.width))

    def rope_output(self, inputs, index):
        """[n, rope_width] of one head's rotary rows, likewise."""
        first = self.rope_starts[index]
        return self._output(inputs, torch.arange(first, first + self.rope_width, device=self.weight.device))

    def _output(self, inputs, rows):
        weight = self.weight.detach().index_select(self.out_dim, rows).float()
        value = inputs.to(weight.device) @ (weight.t() if self.out_dim == 0 else weight)
        return value if self.bias is None else value + self.bias.detach()[rows].float()


def contiguous(heads, width, offset=0, stride=None):
    """Row starts of heads that follow one another from row `offset`: nn.Linear, or a part of [q | k | v]. A head takes
    `stride` rows, of which the first `width` are meant; None: all."""
    return tuple(offset + head * (stride or width) for head in range(heads))


def interleaved(heads, kv_heads, width):
    """(query starts, key starts) where the rows go key head by key head: its query heads, then k, then v (GPT-NeoX,
    BLOOM, Megatron's linear_qkv).
    """
    group = heads // kv_heads
    block = (group + 2) * width
    queries = tuple(h // group * block + h % group * width for h in range(heads))
    return queries, tuple(g * block + group * width for g in range(kv_heads))
