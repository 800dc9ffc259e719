"""Multiplies rows of a parameter, wherever its elements lie.

Values are multiplied in float32 (float64 stays float64) and rounded once to the working type, so that ranks and shards
get the bits that one process with the whole parameter would get. Rows that are not named keep theirs.
"""

import dataclasses

import torch


@dataclasses.dataclass
class Part:
    """Some of a parameter's elements: all of them, or the contiguous flat slice that begins with element `begin` of the
    row-major flattened `shape` (a distributed optimizer's shard, FSDP's flat parameter). A slice may begin and end
    anywhere, in the middle of a row or a head, and may be empty.
    """

    tensor: torch.Tensor  # 1-D where it is a slice.
    begin: int = 0
    shape: tuple = None  # Of the whole parameter; None: this is all of it.

    @property
    def whole(self):
        return self.shape is None

    @property
    def places(self):
        """(begin, end) in the flattened parameter."""
        return self.begin, self.begin + self.tensor.numel()

    def views(self):
        """Matrices (vectors, where the parameter is one) that together are these elements: (view, its first row, its
        first column)."""
        tensor = self.tensor.detach()
        if self.whole:
            return [(tensor, 0, 0)]
        begin, end = self.places
        if len(self.shape) == 1:
            return [(tensor, begin, 0)] if end > begin else []
        columns = self.shape[1]
        first_whole, last_whole = -(-begin // columns), end // columns
        if first_whole > last_whole:  # Inside one row.
            return [(tensor[None], begin // columns, begin % columns)]
        head, tail = first_whole * columns - begin, end - last_whole * columns
        views = []
        if head:
            views.append((tensor[:head][None], first_whole - 1, columns - head))
        if last_whole > first_whole:
            views.append((tensor[head : tensor.numel() - tail].view(-1, columns), first_whole, 0))
        if tail:
            views.append((tensor[tensor.numel() - tail :][None], last_whole, 0))
        return views


@dataclasses.dataclass
class Rows:
    """Which output rows to multiply by what. CPU tensors of one length; each row once."""

    numbers: torch.Tensor  # int64
    factors: torch.Tensor  # float32, (0, 1].
    dim: int = 0  # The parameter's output dimension.
    unit_offset: bool = False  # The parameter is a gain w that is applied as 1 + w.

    def within(self, view, first_row, first_column):
        """(row numbers inside the view, factors shaped to multiply them), on the view's device; None: no row of it."""
        first = first_row if self.dim == 0 else first_column
        inside = (self.numbers >= first) & (self.numbers < first + view.shape[self.dim])
        if not bool(inside.any()):
            return None
        shape = [1] * view.dim()
        shape[self.dim] = -1
        return ((self.numbers[inside] - first).to(view.device),
                self.factors[inside].to(view.device).view(shape))

    def scaled(self, values, factors):
        """`values` times `factors`, not yet rounded to their type."""
        wide = values if values.dtype == torch.float64 else values.float()
        product = wide * factors
        return product + (factors - 1) if self.unit_offset else product


def scale(part, rows, copy=None):
    """Multiplies the named rows of `part` in place. `copy`: a tensor of all the elements of a whole `part`, in a
    narrower type, that takes the same rows, rounded.
    """
    with torch.no_grad():
        for view, first_row, first_column in part.views():
            chosen = rows.within(view, first_row, first_column)
            if chosen is None:
                continue
            index, factors = chosen
            values = rows.scaled(view.index_select(rows.dim, index), factors)
            view.index_copy_(rows.dim, index, values.to(view.dtype))
            if copy is not None:
                copy.detach().index_copy_(rows.dim, index, values.to(copy.dtype))
