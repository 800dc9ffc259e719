"""watch(): decides whether there is anything to do, looks at the model, and puts the pieces together."""

import dataclasses
import os

from gyrostat import _abi, arguments, joining, ranks
from gyrostat.arguments import KINDS
from gyrostat.monitor import Monitor
from gyrostat.trouble import Fuse

_INTERACTIVE = ("bash", "sh", "zsh", "interactive", "wrap", "sys/dashboard")  # SLURM job names that name nothing.


def watch(model, optimizer=None, scheduler=None, run=None, address=None, allow=(), tau_min=None, start_step=0,
          group=None, layers=None, heads=None, kv_heads=None, q_proj=None, k_proj=None, set_alpha=None,
          get_alpha=None, place=None, branches=None, schedule=None, model_spec=None):
    """Starts watching `model`. Returns a Monitor, a context manager; never raises and never waits for the daemon.

    optimizer: or a list of them; needed for gradient norms, the learning rate and any clip. scheduler: gives the
        optimizer where that is not given.
    run: stable name of the job, [A-Za-z0-9._:-]; default $GYROSTAT_RUN, else the SLURM job's name, else "run".
    address: "host:port" of gyrostatd; default $GYROSTAT_ADDRESS. Neither: inert, silently.
    allow: intervention kinds that may change anything, or ask for something: qk_clip, warmup_extension, lr_scale,
        deepnorm_alpha, grad_clip, skip_step, checkpoint, rollback, halt, collect. Empty: nothing is ever changed. A
        kind that this loop cannot carry out is taken away, and why is said.
    tau_min: clip orders below this threshold are refused.
    start_step: number of the first step where mon.step() is not told.
    group: process group of the ranks that train this model; default: all. Its rank 0 leads: it reports. Where `allow`
        names something, every rank of the job calls watch() and mon.step() at the same places, and the ranks agree on
        what is changed (client/README.md); only the leader needs an address.
    place: a gyrostat.Place, in a tensor- or pipeline-parallel job; None: every rank holds the whole model.
    layers, heads, kv_heads, q_proj, k_proj: by hand what was not found by walking (see gyrostat.discover.discover).
    set_alpha, get_alpha: for deepnorm_alpha: set_alpha(layer, value) makes the model use it from the next forward on,
        get_alpha(layer) tells what it will use; gyrostat.alpha.bound() makes both from tensors.
    branches: {layer: gyrostat.alpha.Branch}, the weights that an order of beta scales; None: no beta is applied.
    schedule: dict(kind=, peak=, warmup_steps=, total_steps=), where the scheduler cannot be read (LambdaLR): warm-up
        extensions need it. model_spec: {field of gyro_model: value} that wins over what was found.

    GYROSTAT_DISABLE=1 makes it inert (set it on all ranks or on none). Without torch.distributed only rank 0 (RANK,
    else LOCAL_RANK, else SLURM_PROCID) is active, and of several ranks it only watches.
    """
    fuse = Fuse()
    try:
        if os.environ.get("GYROSTAT_DISABLE") == "1":
            return Monitor(fuse=fuse)
        address = address or os.environ.get("GYROSTAT_ADDRESS")
        job = ranks.find(group)
        if not job.can_meet and not (address and job.leads):
            return Monitor(fuse=fuse)
        kinds, tau_min = arguments.allowed(allow, tau_min, KINDS, fuse if job.leads and address else Fuse())
        together = job.can_meet and bool(kinds)
        here = job.leads and bool(address) and arguments.address(address, fuse)
        if not together and not here:
            return Monitor(fuse=fuse)
        if job.trouble:
            fuse.say(job.trouble)
        if kinds and job.world > 1 and not job.can_meet:
            fuse.say(f"nothing will be changed: torch.distributed is not initialized, so that the {job.world} ranks of "
                     "this job cannot agree")
        options = {"address": address if here else None, "allow": kinds, "tau_min": tau_min, "rank": job.rank,
                   "world_size": job.world}
        optimizers = arguments.optimizers(_optimizers(optimizer, scheduler, fuse), fuse)
        spec = {**arguments.schedule(schedule, fuse), **arguments.model_spec(model_spec, fuse)}
        parts = Parts(fuse, model, optimizers, scheduler, options, start_step, (set_alpha, get_alpha), branches, spec,
                      {"layers": layers, "heads": heads, "kv_heads": kv_heads, "q_proj": q_proj, "k_proj": k_proj})
        if together:
            return _open_together(parts, job, place, run)
        options["run"] = arguments.run(run, fuse) or _default_run()
        return _open_alone(parts)
    except Exception as error:  # Watching must not cost anybody a run.
        fuse.blow(error)
        return Monitor(fuse=fuse)


@dataclasses.dataclass
class Parts:
    """What watch() was given, looked at."""

    fuse: Fuse
    model: object
    optimizers: list
    scheduler: object
    options: dict
    start_step: object
    alpha: tuple  # (set_alpha, get_alpha), or Nones.
    branches: object
    spec: dict  # By hand.
    by_hand: dict


def _open_alone(parts):
    fuse = parts.fuse
    library, trouble = _load(parts.model)
    if trouble:
        fuse.say(f"not watching: {trouble}")
        return Monitor(fuse=fuse)
    parts.options.update(_names())
    session = _assemble(parts, _discover(parts.model, parts.by_hand, fuse), joining.Alone(library, parts.options, fuse))
    session.open(last=not parts.optimizers)
    return Monitor(session, fuse)


def _open_together(parts, job, place, run):
    """Every rank comes by here, whatever is wrong with it: the others wait."""
    fuse = parts.fuse
    device = _device(parts.model)
    there = job.meet({"address": parts.options["address"] is not None, "nccl": device is not None})
    if not there[0]["address"]:
        return Monitor(fuse=fuse)
    parts.options["run"] = arguments.run(run or os.environ.get("GYROSTAT_RUN"), fuse) or _default_run() or "run"
    if job.world == 1:
        return _open_alone(parts)
    trouble = ranks.trouble_of(place)
    library, missing = _load(parts.model)
    together = joining.Together(job, library, parts.options, place, fuse,
                                device if all(each["nccl"] for each in there) else None)
    session = None
    try:
        trouble = trouble or missing
        if not trouble:
            found = _discover(parts.model, parts.by_hand, fuse)
            parts.options.update(_names())
            holding = ranks.Holding.of(place, found)
            for layer in found.layers:
                layer.stand(holding.layers[0], holding.heads[0], holding.kv_heads[0])
            session = _assemble(parts, found, together)
    except Exception as error:
        trouble = f"an error while looking at the model: {error!r}"
        fuse.blow(error)
    if trouble:
        together.failed(trouble)
        together.open(last=True)
        return Monitor(fuse=fuse)
    session.open(last=False)
    return Monitor(session, fuse)


def _load(model):
    """(the library, "") or (None, why nothing can be watched)."""
    try:
        library = _abi.Library()
    except OSError as error:
        return None, str(error)
    import torch

    if not isinstance(model, torch.nn.Module):
        return None, f"model is {arguments.shown(model)}, wanted a torch.nn.Module"
    return library, ""


def _names():
    import torch

    # Where reports turn out to be of another kind, they say so themselves.
    return {"framework": f"torch {torch.__version__}", "logit_kind": _abi.KINDS["exact"], "logit_with_bias": 1,
            "logit_pre_cap": 1}


def _device(model):
    """The GPU that NCCL reduces on, or None."""
    import torch

    first = next(iter(model.parameters()), None) if isinstance(model, torch.nn.Module) else None
    if first is None or first.device.type != "cuda" or "nccl" not in torch.distributed.get_backend():
        return None
    return first.device


def _assemble(parts, found, opener):
    """The Session, with everything in place around the model and the optimizers."""
    from gyrostat import actuator, alpha, attention, copies, early, rates, signals, tap
    from gyrostat.describe import describe
    from gyrostat.interventions import Interventions, SkippedStep
    from gyrostat.session import Session
    from gyrostat.slices import Slices

    fuse, optimizers = parts.fuse, parts.optimizers
    for note in found.notes:
        fuse.say(note)
    blocks = [layer.block for layer in found.layers]
    within = early.Early()
    probes = {layer.index: attention.LayerProbe(layer, fuse, within)
              for layer in found.layers if layer.attention is not None and layer.heads}
    hidden = signals.HiddenStates(blocks, fuse)
    gradients = signals.Gradients(parts.model, blocks, fuse, optimizers)
    slices = Slices(parts.model, found, optimizers)
    clips = actuator.Actuator(probes, optimizers, fuse, slices)
    first = found.layers[0].index if found.layers else 0
    alphas = alpha.Alphas(*parts.alpha, range(first, first + len(found.layers)), fuse)
    interventions = Interventions(alphas, alpha.Betas(parts.branches, optimizers), lambda: rates.trouble(optimizers),
                                  lambda: gradients.clips, probes)
    opener.looked = joining.Looked(
        found, lambda: describe(parts.model, found, optimizers, parts.scheduler, alphas,
                                parts.branches is not None, parts.spec), interventions,
        slices, copies.Copies(parts.model, found.layers))
    taps, lasting = [], []
    session = Session(fuse, opener, taps, lasting, probes, hidden, gradients, clips, interventions,
                      arguments.start_step(parts.start_step, fuse), within)
    for module, around in ([(block, hidden.around(position)) for position, block in enumerate(blocks)]
                           + [pair for probe in probes.values() for pair in probe.taps()]):
        try:
            taps.append(tap.Tap(module, around))
        except TypeError as error:
            fuse.say(f"{type(module).__name__} cannot be watched: {error}")
    # From the inside out: a skipped step is still looked at, and what is looked at has its rate.
    kinds = set(parts.options["allow"].split(","))
    if "skip_step" in kinds:
        taps += [SkippedStep(one, interventions) for one in optimizers]
    taps += [signals.StepWrapper(one, session.before_update, fuse) for one in optimizers]
    if kinds & {"warmup_extension", "lr_scale"} and not rates.trouble(optimizers):
        lasting.append(rates.Rates(optimizers, session.rate))
    limit = interventions.limit_for(gradients.are_mine) if "grad_clip" in kinds else None
    taps.append(signals.ClipWrapper(_guarded(gradients.clipping, fuse), limit))
    if not optimizers:
        fuse.say("no optimizer was given: gradient norms and the learning rate are not reported, nothing is clipped")
    return session


def _discover(model, by_hand, fuse):
    """What is found; by hand only what fits the model."""
    from gyrostat import discover

    while True:
        try:
            return discover.discover(model, **by_hand)
        except discover.WrongArgument as wrong:  # Each takes at least one argument away.
            fuse.say(f"{wrong}; taken as not given")
            by_hand = {**by_hand, **dict.fromkeys(wrong.names)}


def _guarded(function, fuse):
    def call(*args):
        with fuse.guard():
            function(*args)

    return call


def _optimizers(optimizer, scheduler, fuse):
    """A flat list, innermost first: wrappers (accelerate, mixed precision) keep theirs in `.optimizer`."""
    if scheduler is not None and not callable(getattr(scheduler, "step", None)):
        fuse.say(f"scheduler is {arguments.shown(scheduler)}, wanted one with step(); taken as not given")
    elif optimizer is None:
        optimizer = getattr(scheduler, "optimizer", None)
    given = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    flat = []
    for one in filter(lambda o: o is not None, given):
        for _ in range(4):  # Deeper than any stack of wrappers.
            inner = getattr(one, "optimizer", None)
            if inner is None or not hasattr(inner, "param_groups"):
                break
            one = inner
        flat.append(one)
    return flat


def _default_run():
    if os.environ.get("GYROSTAT_RUN"):
        return None  # The library reads it.
    name = os.environ.get("SLURM_JOB_NAME", "")
    if not name or name in _INTERACTIVE:
        return None
    return arguments.plain(name)
