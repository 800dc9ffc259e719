"""Opens the client of a job: alone, or on all ranks together (ranks.py)."""

import dataclasses

from gyrostat import _abi, ranks
from gyrostat.layout import Layout


@dataclasses.dataclass
class Opened:
    """client: an _abi.Client; None: this rank has nothing to watch. together: all ranks pass boundaries in step."""

    client: object
    layout: Layout
    collective: object = None

    @property
    def together(self):
        return self.collective is not None


class Alone:
    """One rank, or a leader whose ranks only watch."""

    def __init__(self, library, options, describe, found):
        """describe() → the model spec."""
        self._library, self._options, self._describe, self._found = library, options, describe, found

    def open(self, last):
        """The Opened; None, unless `last`, while it is too early: optimizers make their masters in their first step,
        and the daemon must know whether they are float32.
        """
        spec = self._describe()
        if spec["master_fp32"] == -1 and not last:
            return None
        held = len(self._found.layers)
        first = self._found.layers[0] if held else None
        layout = Layout(held, self._found.heads)
        if first is not None and (first.index or first.first_head):  # A leader in the middle of the model.
            layout = Layout(first.index + held, first.first_head + layout.heads, first.index, held, first.first_head)
            spec = {**spec, "layers": layout.layers, "heads": layout.heads, "kv_heads": 0}
        return Opened(_abi.Client(self._library, self._options, spec), layout)


class Together:
    """All ranks of a job; each calls open() equally often."""

    def __init__(self, job, library, options, place, fuse, device):
        """job: ranks.Ranks that have met. device: where lanes are reduced; None: in host memory."""
        self._job, self._library, self._options, self._place = job, library, options, place
        self._fuse, self._device = fuse, device
        self._describe = self._found = self._slices = None
        self._trouble = ""

    def built(self, describe, found, slices):
        """What the model is here. slices: as ranks.rows_owned's own_rows, or None where nothing is sliced."""
        self._describe, self._found, self._slices = describe, found, slices

    def failed(self, trouble):
        """This rank cannot watch; it says so when all open."""
        self._trouble = trouble

    def open(self, last):
        """The Opened of this rank, the same decision on all; None, unless `last`: some rank's optimizers have yet to
        make their masters. Blocks until all ranks are here.
        """
        share = self._share()
        whole = ranks.unite(self._job.gather(share), self._job.rank, self._rows)
        if whole.trouble:
            return self._apart(whole.trouble)
        if not whole.ready and not last:
            return None
        from gyrostat.collective import Collective

        collective = Collective(self._job.own_group, self._device, whole.replica, whole.shards)
        options = {**self._options, "run": whole.run}
        client = _abi.Client(self._library, options, whole.spec, collective)
        held = share.holding
        if held.heads[1] < whole.heads:
            for layer in self._found.layers:
                layer.take_place(whole.heads, whole.kv_heads)
        return Opened(client, Layout(whole.layers, whole.heads, held.layers[0], held.layers[1], held.heads[0]),
                      collective)

    def _share(self):
        share = ranks.Share(trouble=self._trouble, run=self._options["run"],
                            terms=tuple((name, self._options[name]) for name in ("allow", "tau_min")))
        if not share.trouble:
            try:
                self._fill(share)
            except Exception as error:  # The others wait for this rank's word.
                share.trouble = f"an error while looking at the model: {error!r}"
        if not share.trouble:
            share.trouble = share.holding.trouble(self._found)
        return share

    def _fill(self, share):
        share.holding = ranks.Holding.of(self._place, self._found)
        share.spec = self._describe()
        share.ready = share.spec["master_fp32"] != -1 or not any(layer.q for layer in self._found.layers)
        share.sliced = self._slices is not None and self._slices.any()
        share.replica = self._place and (self._place.replica if share.sliced or self._place.replica is not None
                                         else self._place.dp)

    def _rows(self, position, key):
        return self._slices.rows(position, key) if self._slices is not None else None

    def _apart(self, trouble):
        """The ranks do not act together: the leader reports alone, nothing is changed."""
        self._fuse.say(f"nothing will be changed, and only rank 0 reports: {trouble}")
        if not self._job.leads or self._describe is None:
            return Opened(None, None)
        return Alone(self._library, {**self._options, "allow": ""}, self._describe, self._found).open(True)
