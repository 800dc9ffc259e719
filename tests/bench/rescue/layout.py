"""Who holds what in a job of tensor-, data- and pipeline-parallel ranks, and the collectives between them (gloo).

rank = (pp * DP + dp) * TP + tp. Each sum is one all-reduce, so all ranks of a group hold the same bits after it.
"""

import dataclasses

import torch.distributed as dist


@dataclasses.dataclass(frozen=True)
class Shape:
    """Ranks in each direction; their product is the world size."""

    dp: int = 1
    tp: int = 1
    pp: int = 1

    @property
    def world(self):
        return self.dp * self.tp * self.pp

    def coordinates(self, rank):
        """(pp, dp, tp) of a rank."""
        return rank // (self.dp * self.tp), rank // self.tp % self.dp, rank % self.tp

    def rank(self, pp, dp, tp):
        return (pp * self.dp + dp) * self.tp + tp

    @staticmethod
    def parse(text):
        """ "dp2tp2" and the like."""
        sizes = {text[i:i + 2]: int(text[i + 2]) for i in range(0, len(text), 3)}
        return Shape(**sizes)


class Layout:
    """One rank's place in the job. Construct on all ranks at the same place: it makes process groups."""

    def __init__(self, shape, rank):
        self.shape, self.rank = shape, rank
        self.pp, self.dp, self.tp = shape.coordinates(rank)
        self.tp_group = self._groups([[shape.rank(p, d, t) for t in range(shape.tp)]
                                      for p in range(shape.pp) for d in range(shape.dp)])
        self.dp_group = self._groups([[shape.rank(p, d, t) for d in range(shape.dp)]
                                      for p in range(shape.pp) for t in range(shape.tp)])

    def _groups(self, members):
        """The group that this rank is in; None where it is alone."""
        mine = None
        for ranks in members:
            if len(ranks) > 1:
                group = dist.new_group(ranks)
                mine = group if self.rank in ranks else mine
        return mine

    @property
    def first_stage(self):
        return self.pp == 0

    @property
    def last_stage(self):
        return self.pp == self.shape.pp - 1

    def neighbour(self, stages):
        """The rank that many stages on, same dp and tp."""
        return self.shape.rank(self.pp + stages, self.dp, self.tp)

    def share(self, count):
        """(first, how many) of `count` layers that this stage holds."""
        each = count // self.shape.pp
        return self.pp * each, each
