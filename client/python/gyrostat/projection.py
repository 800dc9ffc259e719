"""Which rows of which parameter make the queries, or the keys, of each head of one layer."""

import dataclasses

import torch

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

    @property
    def weight(self):
        return getattr(self.module, self.weight_name)

    @property
    def bias(self):
        return getattr(self.module, self.bias_name) if self.bias_name else None

    @property
    def heads(self):
        return len(self.starts)

    def trouble(self):
        """Why rows of this projection may not be scaled in place, or "" when they may."""
        for name in filter(None, (self.weight_name, self.bias_name)):
            if self.module._parameters.get(name) is None:
                return f"{self.title}.{name} is not a plain parameter"
            if not whole(self.module._parameters[name]):
                return (f"{self.title}.{name} is a {type(self.module._parameters[name]).__name__}, which may be in "
                        "part on other ranks")
        weight = self.weight
        rows = weight.shape[self.out_dim] if weight.dim() == 2 else 0
        if rows < max(self.starts) + self.width:
            return (f"{self.title}.{self.weight_name} is {list(weight.shape)}, "
                    f"wanted a matrix of at least {max(self.starts) + self.width} output rows")
        return ""

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

    def of_head(self, head, inputs):
        """q or k of one head for inputs [n, in], in float32, from the weights as they are now."""
        rows = slice(self.starts[head], self.starts[head] + self.width)
        weight = self.weight.detach().float()
        weight = weight[rows] if self.out_dim == 0 else weight[:, rows].t()
        value = inputs.to(weight.device) @ weight.t()
        return value if self.bias is None else value + self.bias.detach().float()[rows]


def contiguous(heads, width, offset=0):
    """Row starts of heads that follow one another from row `offset`: nn.Linear, or a part of [q | k | v]."""
    return tuple(offset + head * width for head in range(heads))


def interleaved(heads, kv_heads, width):
    """(query starts, key starts) where the rows go key head by key head: its query heads, then k, then v (GPT-NeoX,
    BLOOM, Megatron's linear_qkv).
    """
    group = heads // kv_heads
    block = (group + 2) * width
    queries = tuple(h // group * block + h % group * width for h in range(heads))
    return queries, tuple(g * block + group * width for g in range(kv_heads))
