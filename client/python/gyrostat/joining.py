"""Opens the client of a job: alone, or on all ranks together (ranks.py)."""

import dataclasses

from gyrostat import _abi, copies, ranks
from gyrostat.layout import Layout


@dataclasses.dataclass
class Opened:
    """client: an _abi.Client; None: this rank has nothing to watch. collective: of ranks that act together."""

    client: object
    layout: Layout
    collective: object = None
    weights: dict = dataclasses.field(default_factory=dict)  # As copies.Copies.weights says.
    vocabularies: tuple = ()  # Rows that an output head may have here.


@dataclasses.dataclass
class Looked:
    """What was found on this rank."""

    found: object  # discover.Found
    describe: object  # () → the model spec.
    interventions: object
    slices: object = None  # slices.Slices
    copies: object = None  # copies.Copies


def _able(allow, unable):
    """The kinds of `allow`, comma-separated, without those of {kind: why not}."""
    return ",".join(kind for kind in allow.split(",") if kind and kind not in unable)


def _unable(allow, interventions):
    """{kind: why this loop cannot carry it out}."""
    troubles = {kind: interventions.trouble(kind) for kind in allow.split(",") if kind}
    return {kind: trouble for kind, trouble in troubles.items() if trouble}


def _is_early(spec, allow, interventions, resuming):
    """Optimizers make their masters in their first step, and the daemon must know whether those are float32; that the
    loop clips is seen in its first step, or known from the checkpoint, as is what alpha was before orders moved it.
    """
    if "deepnorm_alpha" in allow.split(",") and interventions.alphas.uneven and not resuming:
        return True
    waits_for_clip = "grad_clip" in allow.split(",") and not interventions.clips and not resuming
    return spec["master_fp32"] == -1 or waits_for_clip


class Alone:
    """One rank, or a leader whose ranks only watch."""

    def __init__(self, library, options, fuse):
        self._library, self._options, self._fuse = library, options, fuse
        self.looked = None  # To be set before open().

    def open(self, last, resuming=False):
        """The Opened; None, unless `last`, while it is too early."""
        looked, allow = self.looked, self._options["allow"]
        spec = looked.describe()
        if _is_early(spec, allow, looked.interventions, resuming) and not last:
            return None
        unable = _unable(allow, looked.interventions)
        for kind, trouble in unable.items():
            self._fuse.say(f"{kind} is not allowed after all: {trouble}")
        held = len(looked.found.layers)
        first = looked.found.layers[0] if held else None
        layout = Layout(held, looked.found.heads)
        if first is not None and (first.index or first.first_head):  # A leader in the middle of the model.
            layout = Layout(first.index + held, first.first_head + layout.heads, first.index, held, first.first_head)
            spec = {**spec, "layers": layout.layers, "heads": layout.heads, "kv_heads": 0}
        options = {**self._options, "allow": _able(allow, unable)}
        looked.interventions.alphas.settle()
        return Opened(_abi.Client(self._library, options, spec), layout)


class Together:
    """All ranks of a job; each calls open() equally often."""

    def __init__(self, job, library, options, place, fuse, device):
        """job: ranks.Ranks that have met. device: where lanes are reduced; None: in host memory."""
        self._job, self._library, self._options, self._place = job, library, options, place
        self._fuse, self._device = fuse, device
        self.looked = None  # To be set before open(), unless this rank failed.
        self._trouble = ""

    def failed(self, trouble):
        """This rank cannot watch; it says so when all open."""
        self._trouble = trouble

    def open(self, last, resuming=False):
        """The Opened of this rank, the same decision on all; None, unless `last`: it is too early on some rank. Blocks
        until all ranks are here.
        """
        share = self._share(resuming)
        shares = self._job.gather(share)
        whole = ranks.unite(shares, self._job.rank, self._rows)
        if whole.trouble:
            return self._apart(whole.trouble)
        if not whole.ready and not last:
            return None
        from gyrostat.collective import Collective

        for rank, each in enumerate(shares):
            for kind, trouble in each.unable.items() if self._job.leads else ():
                self._fuse.say(f"{kind} is not allowed after all: rank {rank}: {trouble}", about=(self, kind))
        unable = {kind for each in shares for kind in each.unable}
        options = {**self._options, "run": whole.run, "allow": _able(self._options["allow"], unable)}
        if not options["allow"]:
            return self._apart("no kind is left that all ranks can carry out")
        collective = Collective(self._job.own_group, self._device, whole.replica, whole.shards)
        client = _abi.Client(self._library, options, whole.spec, collective)
        self.looked.interventions.alphas.settle()
        held = share.holding
        if held.heads[1] < whole.heads:
            for layer in self.looked.found.layers:
                layer.take_place(whole.heads, whole.kv_heads)
        partial = held.layers[1] < whole.layers or held.heads[1] < whole.heads
        layout = Layout(whole.layers, whole.heads, held.layers[0], held.layers[1], held.heads[0], partial)
        vocabulary = whole.spec.get("vocab_size") or 0
        cut = whole.heads // held.heads[1] if held.heads[1] else 1
        return Opened(client, layout, collective, self._weights(shares, whole), (vocabulary, vocabulary // cut))

    def _share(self, resuming):
        share = ranks.Share(trouble=self._trouble, run=self._options["run"],
                            terms=tuple((name, self._options[name]) for name in ("allow", "tau_min")))
        if not share.trouble:
            try:
                self._fill(share, resuming)
            except Exception as error:  # The others wait for this rank's word.
                share.trouble = f"an error while looking at the model: {error!r}"
        return share

    def _look_for_copies(self, share):
        """Not on ranks that hold all of a model each: none of them shares a replica with another."""
        if self.looked.copies is None or not (self._place or share.sliced):
            return
        place = self._place or ranks.Place()
        share.part = (place.tp, place.pp)
        try:
            self.looked.copies.look()
            share.numbers = self.looked.copies.numbers
        except Exception as error:  # Norms are worth no more than that.
            self._say_copies(error)

    def _weights(self, shares, whole):
        try:
            seats = [copies.Seat(rank, (each.part[1], each.holding.layers), (each.part, each.holding),
                                 (each.holding.heads, each.holding.kv_heads), each.numbers)
                     for rank, each in enumerate(shares) if whole.replicas[rank] == whole.replica]
            mine = next(seat for seat in seats if seat.rank == self._job.rank)
            peers = [seat for seat in seats if seat is not mine]
            if not (mine.numbers and peers):
                return {}
            return self.looked.copies.weights(mine, peers, whole.spec.get("hidden_size") or 0)
        except Exception as error:
            self._say_copies(error)
            return {}

    def _say_copies(self, error):
        self._fuse.say(f"what ranks hold alike was not found out ({error!r}): it counts once for each of them in the "
                       "norms of gradients", about=(self, "copies"))

    def _fill(self, share, resuming):
        looked, allow = self.looked, self._options["allow"]
        share.holding = ranks.Holding.of(self._place, looked.found)
        share.trouble = share.holding.trouble(looked.found)
        share.spec = looked.describe()
        share.unable = _unable(allow, looked.interventions)
        if not any(layer.q for layer in looked.found.layers):
            share.spec["master_fp32"] = None  # Has no say.
        share.ready = not _is_early(share.spec, allow, looked.interventions, resuming)
        share.sliced = looked.slices is not None and looked.slices.any()
        share.replica = self._place and (self._place.replica if share.sliced or self._place.replica is not None
                                         else self._place.dp)
        self._look_for_copies(share)

    def _rows(self, position, key):
        slices = self.looked.slices
        return slices.rows(position, key) if slices is not None else None

    def _apart(self, trouble):
        """The ranks do not act together: the leader reports alone, nothing is changed."""
        self._fuse.say(f"nothing will be changed, and only rank 0 reports: {trouble}")
        if not self._job.leads or self.looked is None:
            return Opened(None, None)
        alone = Alone(self._library, {**self._options, "allow": ""}, self._fuse)
        alone.looked = self.looked
        return alone.open(last=True)
