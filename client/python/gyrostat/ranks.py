"""Which ranks train one model, what each of them holds, and whether they act together.

Ranks that may change something meet twice. In watch(), over all ranks of the job: who is here, and does the leader have
an address? Then, when the client opens (in watch(), or in the first step where optimizers have yet to make their
masters): what does each rank hold? From equal answers all draw the same conclusions, so no rank waits for another that
does not come. Ranks that cannot act together do not: the leader reports alone, and says why.
"""

import dataclasses
import os
import sys

from gyrostat.arguments import shown


@dataclasses.dataclass(frozen=True)
class Place:
    """What one rank of a tensor- or pipeline-parallel job holds. Without it: all ranks hold everything (data-parallel).

    dp, tp, pp: its coordinates. layers, heads, kv_heads: (first, count) of what is here, numbered over the whole model;
    not given: pp or tp times as many as were found here. Where ranks share key heads (fewer than tp), give kv_heads.
    replica: which copy of the weights this rank holds a part of; not given: dp, and 0 where the optimizer shards its
    parameters over the data-parallel ranks.
    """

    dp: int = 0
    tp: int = 0
    pp: int = 0
    layers: tuple = None
    heads: tuple = None
    kv_heads: tuple = None
    replica: int = None

    def trouble(self):
        """What is wrong with it, or ""."""
        for name in ("dp", "tp", "pp", "replica"):
            value = getattr(self, name)
            if not (_is_count(value) or (name == "replica" and value is None)):
                return f"place.{name} is {shown(value)}, wanted a whole number from 0"
        for name in ("layers", "heads", "kv_heads"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (tuple, list)) and len(value) == 2
                                          and all(map(_is_count, value)) and value[1] > 0):
                return f"place.{name} is {shown(value)}, wanted (first, count)"
        return ""


def trouble_of(place):
    """What is wrong with watch(place=), or ""."""
    if place is None or isinstance(place, Place):
        return place.trouble() if place else ""
    return f"place is {shown(place)}, wanted a gyrostat.Place"


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 24


@dataclasses.dataclass
class Holding:
    """The part of the model that is on this rank: (first, count) each, numbered over the whole model."""

    layers: tuple
    heads: tuple
    kv_heads: tuple

    @staticmethod
    def of(place, found):
        """place: a Place or None. found: discover.Found of what is here."""
        def span(given, coordinate, count):
            return tuple(given) if given else (coordinate * count, count)

        place = place or Place()
        tp = place.tp if found.heads else 0
        heads = span(place.heads, tp, found.heads)
        # By grouping: where heads begin, so do their key heads.
        group = max(1, found.heads // max(1, found.kv_heads))
        kv_heads = tuple(place.kv_heads) if place.kv_heads else (heads[0] // group, found.kv_heads)
        return Holding(span(place.layers, place.pp, len(found.layers)), heads, kv_heads)

    def trouble(self, found):
        """Where what was said is not what was found."""
        if not found.layers:  # A stage of the embedding alone.
            return ""
        for name, said, here in (("layers", self.layers, len(found.layers)), ("heads", self.heads, found.heads),
                                 ("kv_heads", self.kv_heads, found.kv_heads)):
            if said[1] != here:
                return f"place.{name} is {said}, but {here} were found on this rank"
        return ""


class Ranks:
    """The ranks of one job."""

    def __init__(self, rank, world, distributed=None, group=None, trouble=""):
        """distributed: torch.distributed, where it is up. trouble: what was wrong with the group."""
        self.rank, self.world, self.trouble = rank, world, trouble
        self._distributed = distributed
        self._group = group  # The user's.
        self._own = None  # Ours, once met.

    @property
    def leads(self):
        return self.rank == 0

    @property
    def can_meet(self):
        """Whether there are other ranks to meet, be it of other groups."""
        return self._distributed is not None and self._distributed.get_world_size() > 1

    def meet(self, mine):
        """Blocks until every rank of the job is here. Returns what each rank of the group said, in its order. Ranks
        whose leader has an address make the process group on which they go on. mine: {"address", "nccl": bool}."""
        distributed = self._distributed
        members = self._members()
        everyone = [None] * distributed.get_world_size()
        distributed.all_gather_object(everyone, {"members": members, "said": mine})
        # Each process makes all groups, in one order: torch wants it so.
        for ranks in sorted({each["members"] for each in everyone}):
            said = [everyone[rank]["said"] for rank in ranks]
            if len(ranks) > 1 and said[0]["address"]:
                backend = "nccl" if all(each["nccl"] for each in said) else "gloo"
                made = distributed.new_group(list(ranks), backend=backend)
                if ranks == members:
                    self._own = made
        return [everyone[rank]["said"] for rank in members]

    def gather(self, mine):
        """What each rank of the group says, in its order; blocks."""
        said = [None] * self.world
        self._distributed.all_gather_object(said, mine, group=self._own)
        return said

    @property
    def own_group(self):
        return self._own

    def _members(self):
        distributed = self._distributed
        if self._group is None:
            return tuple(range(distributed.get_world_size()))
        home = distributed.distributed_c10d
        translate = getattr(home, "get_global_rank", None) or home._get_global_rank  # The first: torch >= 1.13.1.
        return tuple(translate(self._group, rank) for rank in range(self.world))


def find(group):
    """The Ranks of this process: from torch.distributed where it is up, else from the launcher's environment."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        trouble = ""
        try:
            rank, world = distributed.get_rank(group), distributed.get_world_size(group)
        except Exception as error:  # Each torch has its own for what is no group.
            trouble = (f"group is {shown(group)}, wanted a process group ({type(error).__name__}); taken as not given")
            group, rank, world = None, distributed.get_rank(), distributed.get_world_size()
        return Ranks(rank, world, distributed, group, trouble)
    trouble = "" if group is None else (f"group is {shown(group)}, but torch.distributed is not initialized; taken as "
                                        "not given")
    rank = next((int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID")
                 if os.environ.get(name, "").isdigit()), 0)
    world = next((int(os.environ[name]) for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
                  if os.environ.get(name, "").isdigit()), 1)
    return Ranks(rank, max(world, rank + 1), trouble=trouble)


@dataclasses.dataclass
class Share:
    """What one rank says when the client opens."""

    trouble: str = ""  # Why it cannot act, or "".
    ready: bool = True  # Its optimizers have made their masters.
    holding: Holding = None
    spec: dict = None  # opening.describe() of what is here.
    replica: int = None  # As the user said.
    sliced: bool = False  # Parameters, or their masters, are here in part only.
    part: tuple = (0, 0)  # Its coordinates (tp, pp).
    numbers: bytes = b""  # Of its parameters (copies.py).
    terms: tuple = ()  # What must be equal on all ranks: (name, value).
    run: str = None
    unable: dict = dataclasses.field(default_factory=dict)  # {kind: why it cannot carry it out}.


@dataclasses.dataclass
class Whole:
    """What all ranks together hold, or why they cannot act together."""

    trouble: str = ""
    ready: bool = True
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    spec: dict = None
    replica: int = 0  # Of this rank.
    replicas: list = dataclasses.field(default_factory=list)  # Of all ranks.
    shards: list = dataclasses.field(default_factory=list)  # Rows of this rank: (layer, key, first, end). Empty: all.
    run: str = None


def unite(shares, rank, own_rows):
    """The Whole of the Shares of all ranks, as `rank` needs it; the same on all of them but for what is a rank's own.
    own_rows: see rows_owned.
    """
    for each, share in enumerate(shares):
        if share.trouble:
            return Whole(trouble=f"rank {each}: {share.trouble}")
        for mine, first in zip(share.terms, shares[0].terms):
            if mine != first:
                return Whole(trouble=f"{mine[0]} is {shown(mine[1])} on rank {each} and {shown(first[1])} on rank 0, "
                                     "wanted the same on all ranks")
    whole = Whole(ready=all(share.ready for share in shares), run=shares[0].run)
    whole.layers, whole.heads, whole.kv_heads = (
        max(sum(getattr(share.holding, name)) for share in shares) for name in ("layers", "heads", "kv_heads"))
    whole.spec, whole.trouble = _spec([share.spec for share in shares])
    whole.spec.update(layers=whole.layers, heads=whole.heads, kv_heads=whole.kv_heads)
    _find_attention(whole)
    sliced = any(share.sliced for share in shares)
    replicas = whole.replicas = [_replica(share, at, sliced) for at, share in enumerate(shares)]
    whole.replica = replicas[rank]
    peers = [share.holding for at, share in enumerate(shares[:rank]) if replicas[at] == replicas[rank]]
    mine = shares[rank].holding
    everything = Holding((0, whole.layers), (0, whole.heads), (0, whole.kv_heads))
    if sliced or mine != everything:
        whole.shards = rows_owned(mine, [] if sliced else peers, whole.spec["head_dim"] or 1, own_rows)
    return whole


def _replica(share, rank, sliced):
    if share.replica is not None:
        return share.replica
    return 0 if sliced else rank


def _spec(specs):
    """One spec of all; what is equal everywhere it is known."""
    spec = dict(specs[0])
    for name in ("hidden_size", "vocab_size", "head_dim"):  # A stage without the embedding does not know all.
        spec[name] = max(each.get(name) or 0 for each in specs)
    masters = [each["master_fp32"] for each in specs if each.get("master_fp32") is not None]
    spec["master_fp32"] = min(masters, default=-1)
    spec["deepnorm_beta"] = min(each.get("deepnorm_beta") or 0.0 for each in specs)  # 0: one cannot scale its branches.
    for name in ("attention", "qk_norm", "compute_dtype", "norm_kind", "norm_gain", "norm_placement",
                 "deepnorm_alpha"):
        seen = [each.get(name) for each in specs]
        known = {value for value in seen if value is not None}
        spec[name] = next((value for value in seen if value is not None), None)
        if name in ("qk_norm", "deepnorm_alpha") and len(known) > 1:
            return spec, f"the ranks' models differ in {name}: {', '.join(sorted(map(str, known)))}"
    return spec, ""


def _find_attention(whole):
    """mha, gqa or mqa follows from all heads, not from those of one rank."""
    if whole.spec.get("attention") in ("mha", "gqa", "mqa") and whole.kv_heads:
        if whole.heads % whole.kv_heads:
            whole.trouble = whole.trouble or (f"{whole.heads} heads in all and {whole.kv_heads} key heads, wanted as "
                                              "many queries for each; see Place.kv_heads")
        whole.spec["attention"] = ("mha" if whole.kv_heads == whole.heads
                                   else "mqa" if whole.kv_heads == 1 else "gqa")


def rows_owned(holding, earlier, rows_per_head, own_rows):
    """[(layer, key, first row, end)] that this rank owns: the rows of its heads; of key heads that several ranks hold,
    the first does (`earlier`: Holdings of ranks before it, of the same replica).

    own_rows(position of the layer here, key) → [(first, end)] inside the rows of the heads that are here, where only
    slices of them are; None: all.
    """
    rows = []
    for position in range(holding.layers[1]):
        layer = holding.layers[0] + position
        for key, (first, count) in enumerate((holding.heads, holding.kv_heads)):
            mine = own_rows(position, key)
            if mine is not None:
                begin = first * rows_per_head
                rows += [(layer, key, begin + a, begin + b) for a, b in mine]
                continue
            for head in range(first, first + count):
                if key == 1 and any(_holds(each, layer, head) for each in earlier):
                    continue
                begin = head * rows_per_head
                if rows and rows[-1][:2] == (layer, key) and rows[-1][3] == begin:
                    begin = rows.pop()[2]
                rows.append((layer, key, begin, (head + 1) * rows_per_head))
    return rows


def _holds(holding, layer, kv_head):
    layers, heads = holding.layers, holding.kv_heads
    return layers[0] <= layer < sum(layers) and heads[0] <= kv_head < sum(heads)

