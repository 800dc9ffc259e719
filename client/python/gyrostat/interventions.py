"""Every kind of order but clips, put on the loop (gyrostat.h, "Registers").

The library keeps what was ordered, the same on every rank, and checkpoints hold it; here it is done. Learning rates and
alpha follow the library's numbers at each boundary; a skipped step, a lower clipping norm and rarer measurements are
what the wrappers around the loop's own calls do; the rest are requests, which only the loop can carry out.
"""

import collections

import torch

from gyrostat import _abi
from gyrostat.arguments import KINDS
from gyrostat.stepping import WrappedStep

REQUESTS = ("checkpoint", "rollback", "halt")
_REQUESTS_MAX = 64  # Kept for a loop that does not ask.

Request = collections.namedtuple("Request", "kind reason step")
Request.__doc__ = "Something that the loop is asked to do, once: at the boundary of `step`, for the intent `reason`."


class Interventions:
    """Of one loop. Training thread only."""

    def __init__(self, alphas, betas, rates_trouble, clips, probes):
        """alphas: alpha.Alphas. betas: alpha.Betas. rates_trouble() → why no rate can be capped, or "". clips() →
        whether the loop clips gradients by their norm. probes: {layer: LayerProbe}.
        """
        self.alphas, self._betas = alphas, betas
        self._rates_trouble, self._clips = rates_trouble, clips
        self._probes = probes
        self._requests = collections.deque(maxlen=_REQUESTS_MAX)
        self._skip_at = 0  # Boundary whose optimizer step is left out.
        self._next = 1  # The boundary that the optimizer step to come belongs to.
        self._clip_limit = None  # The largest gradient norm that clipping may leave.
        self._collect_every = 1
        self._resumed_clips = False  # The loop clipped, says the checkpoint.

    def trouble(self, kind):
        """Why this loop cannot carry out `kind`, or ""."""
        if kind in ("warmup_extension", "lr_scale"):
            return self._rates_trouble()
        if kind == "deepnorm_alpha":
            return self.alphas.declared()[1]
        if kind == "grad_clip" and not self.clips:
            return "the loop does not clip gradients by their norm with torch.nn.utils.clip_grad_norm_"
        return ""

    @property
    def clips(self):
        """Whether the loop has clipped gradients by their norm, in this process or the one that it resumes."""
        return self._clips() or self._resumed_clips

    def show_alphas(self, report):
        """Has the report fetch what the model shows; the list is filled when it is sent."""
        shown = self.alphas.shown()
        values = [value if not isinstance(value, torch.Tensor) else None for value in shown]
        places = [i for i, value in enumerate(values) if value is None]

        def then(fetched):
            for place, value in zip(places, fetched):
                values[place] = value

        report.later([shown[place].detach() for place in places], then)
        return values

    def move_alphas(self, client):
        """Between the step's end and the last poll: gives the model what the library says, and tells it what the model
        showed."""
        for layer, value in self.alphas.advance(lambda layer: client.register(_abi.REGISTER_ALPHA + layer)).items():
            client.observe(_abi.REGISTER_ALPHA + layer, value)

    def apply(self, kind, registers, intent, step):
        """registers: [(id, from, value)]. Returns (outcome, reason), as the actuator."""
        values = {register: value for register, _, value in registers}
        if kind == "deepnorm_alpha":
            return self._apply_alpha(registers)
        if kind == "grad_clip":
            self._clip_limit = values.get(_abi.REGISTER_GRAD_CLIP, self._clip_limit)
        elif kind == "skip_step":
            self._skip_at = int(values.get(_abi.REGISTER_SKIP_BOUNDARY, 0))
        elif kind == "collect":
            self._collect_every = max(1, int(values.get(_abi.REGISTER_COLLECT_EVERY, 1)))
        elif kind in REQUESTS:
            self._requests.append(Request(kind, intent, step))
        elif kind not in KINDS:
            return _abi.REFUSED, f"this client cannot apply {kind}"
        return _abi.APPLIED, ""

    def _apply_alpha(self, registers):
        first = _abi.REGISTER_ALPHA
        alphas = [register - first for register, _, _ in registers if first <= register < _abi.REGISTER_BETA]
        betas = {register - _abi.REGISTER_BETA: (old, new) for register, old, new in registers
                 if register >= _abi.REGISTER_BETA}
        if alphas and self.alphas.trouble():
            return _abi.REFUSED, self.alphas.trouble()
        writes, trouble = self._betas.plan(betas) if betas else ([], "")
        if trouble:
            return _abi.REFUSED, trouble
        try:
            with torch.no_grad():
                for write in writes:
                    write.apply()
        except Exception as error:
            return _abi.FAILED, f"an error while scaling weights by beta: {error}"
        self.alphas.moves(alphas)
        return _abi.APPLIED, ""

    def passed(self, boundary):
        """Boundary `boundary` is over: what holds for the step to come."""
        self._next = boundary + 1
        resting = self._collect_every > 1 and self._next % self._collect_every != 0
        for probe in self._probes.values():
            probe.resting = resting

    @property
    def skips(self):
        """Whether the optimizer step now coming is left out."""
        return self._next == self._skip_at

    def limit_for(self, are_mine):
        """For signals.ClipWrapper: the limit on a clipping of parameters with these ids."""
        return lambda ids: self._clip_limit if self._clip_limit is not None and are_mine(ids) else None

    def requests(self):
        """What was asked since the last call, oldest first."""
        taken = list(self._requests)
        self._requests.clear()
        return taken

    def state_dict(self):
        return {"clips": self.clips, "clip_limit": self._clip_limit, "collect_every": self._collect_every,
                "alphas": sorted(self.alphas.moving), "declared_alpha": self.alphas.base}

    def load_state_dict(self, state):
        """Raises KeyError, TypeError or ValueError for what cannot be such a state."""
        limit, every = state["clip_limit"], int(state["collect_every"])
        if not (limit is None or float(limit) > 0) or every < 1:
            raise ValueError("numbers that no order could have made")
        moving = [int(layer) for layer in state["alphas"]]
        declared = state["declared_alpha"]
        if not (declared is None or float(declared) > 0):
            raise ValueError(f"a declared alpha of {declared}")
        self._resumed_clips = bool(state["clips"])
        self._clip_limit, self._collect_every = limit and float(limit), every
        self.alphas.moves(moving)
        if self.alphas.base is None and declared is not None:
            self.alphas.base = float(declared)

    def forget(self):
        """The weights got another history: what named a boundary of the old one is void."""
        self._skip_at = 0
        self._requests.clear()


class SkippedStep(WrappedStep):
    """Leaves the optimizer's update out where that was ordered; a closure is still called, for its loss."""

    def __init__(self, optimizer, interventions):
        def around(original, *args, **kwargs):
            if not interventions.skips:
                return original(*args, **kwargs)
            closure = args[0] if args else kwargs.get("closure")
            if not callable(closure):
                return None
            with torch.enable_grad():
                return closure()

        super().__init__(optimizer, around)
