"""watch(): decides whether there is anything to do, looks at the model, and puts the pieces together."""

import os

from gyrostat import _abi, arguments
from gyrostat.monitor import Monitor
from gyrostat.trouble import Fuse

_KINDS = ("qk_clip",)  # What this client can apply.
_PRESETS = {
    "gpt2": "gpt2", "llama": "llama", "deepseek_v3": "deepseek-v3", "qwen3": "qwen3", "kimi_k2": "kimi-k2",
    "gemma2": "gemma2", "gemma3": "gemma3", "gemma3_text": "gemma3", "olmo2": "olmo2", "glm4": "glm4",
    "gpt_neox": "gpt-neox", "bert": "bert",
}  # By the config.model_type of Hugging Face models.
_INTERACTIVE = ("bash", "sh", "zsh", "interactive", "wrap", "sys/dashboard")  # SLURM job names that name nothing.


def watch(model, optimizer=None, scheduler=None, run=None, address=None, allow=(), tau_min=None, start_step=0,
          group=None, layers=None, heads=None, kv_heads=None, q_proj=None, k_proj=None, set_alpha=None,
          get_alpha=None):
    """Starts watching `model`. Returns a Monitor, a context manager; never raises and never waits for the daemon.

    optimizer: or a list of them; needed for gradient norms, the learning rate and any clip. scheduler: gives the
        optimizer where that is not given.
    run: stable name of the job, [A-Za-z0-9._:-]; default $GYROSTAT_RUN, else the SLURM job's name, else "run".
    address: "host:port" of gyrostatd; default $GYROSTAT_ADDRESS. Neither: inert, silently.
    allow: intervention kinds that may change anything, of ("qk_clip",). Empty: nothing is ever changed.
    tau_min: clip orders below this threshold are refused.
    start_step: number of the first step where mon.step() is not told.
    group: process group of the replicas; default: all. Only its rank 0 reports; with more than one rank orders that
        change weights are refused.
    layers, heads, kv_heads, q_proj, k_proj: by hand what was not found by walking (see gyrostat.discover.discover).
    set_alpha, get_alpha: for deepnorm_alpha, which this client does not apply yet; said once.

    GYROSTAT_DISABLE=1 makes it inert. Only rank 0 (RANK, else LOCAL_RANK, else SLURM_PROCID) is active.
    """
    fuse = Fuse()
    try:
        address = address or os.environ.get("GYROSTAT_ADDRESS")
        if not address or os.environ.get("GYROSTAT_DISABLE") == "1":
            return Monitor(fuse=fuse)
        rank, world, trouble = _place(group)
        if rank != 0 or not arguments.address(address, fuse):
            return Monitor(fuse=fuse)
        if trouble:
            fuse.say(trouble)
        if set_alpha is not None or get_alpha is not None:
            fuse.say("deepnorm_alpha is not applied by this client: set_alpha and get_alpha are not used")
        by_hand = {"layers": layers, "heads": heads, "kv_heads": kv_heads, "q_proj": q_proj, "k_proj": k_proj}
        kinds, tau_min = arguments.allowed(allow, tau_min, _KINDS, fuse)
        options = {"address": address, "run": arguments.run(run, fuse) or _default_run(), "allow": kinds,
                   "tau_min": tau_min, "rank": rank, "world_size": world}
        optimizers = arguments.optimizers(_optimizers(optimizer, scheduler, fuse), fuse)
        return _open(fuse, model, optimizers, options, arguments.start_step(start_step, fuse), by_hand)
    except Exception as error:  # Watching must not cost anybody a run.
        fuse.blow(error)
        return Monitor(fuse=fuse)


def _open(fuse, model, optimizers, options, start_step, by_hand):
    try:
        library = _abi.Library()
    except OSError as error:
        fuse.say(f"not watching: {error}")
        return Monitor(fuse=fuse)
    import torch

    from gyrostat import actuator, attention, signals, tap
    from gyrostat.session import Session

    if not isinstance(model, torch.nn.Module):
        fuse.say(f"not watching: model is {arguments.shown(model)}, wanted a torch.nn.Module")
        return Monitor(fuse=fuse)
    found = _discover(model, by_hand, fuse)
    for note in found.notes:
        fuse.say(note)
    blocks = [layer.block for layer in found.layers]
    probes = {layer.index: attention.LayerProbe(layer, fuse)
              for layer in found.layers if layer.attention is not None and layer.heads}
    hidden = signals.HiddenStates(blocks, fuse)
    gradients = signals.Gradients(model, blocks, fuse, optimizers)
    clips = actuator.Actuator(probes, optimizers, fuse)

    def open_client():
        # The daemon must know whether masters are float32, and optimizers make them in their first step.
        spec = describe(model, found, optimizers)
        # Where reports turn out to be of another kind, they say so themselves.
        names = {"framework": f"torch {torch.__version__}", "logit_kind": _abi.KINDS["exact"], "logit_with_bias": 1,
                 "logit_pre_cap": 1}
        return _abi.Client(library, {**options, **names}, spec)

    taps = []
    session = Session(fuse, open_client, taps, probes, hidden, gradients, clips, len(found.layers), found.heads,
                      start_step)
    for module, around in ([(layer.block, hidden.around(layer.index)) for layer in found.layers]
                           + [pair for probe in probes.values() for pair in probe.taps()]):
        try:
            taps.append(tap.Tap(module, around))
        except TypeError as error:
            fuse.say(f"{type(module).__name__} cannot be watched: {error}")
    for one in optimizers:
        taps.append(signals.StepWrapper(one, session.before_update, fuse))
    taps.append(signals.ClipWrapper(_guarded(gradients.clipping, fuse)))
    if not optimizers:
        fuse.say("no optimizer was given: gradient norms and the learning rate are not reported, nothing is clipped")
    if describe(model, found, optimizers)["master_fp32"] != -1 or not optimizers:
        session.open()
    return Monitor(session, fuse)


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


def describe(model, found, optimizers):
    """The model spec as {field of gyro_model: value}; None and 0 where not known."""
    import torch

    from gyrostat import masters

    config = getattr(model, "config", None)
    embeddings = [m for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    vocabulary = max(embeddings, key=lambda m: m.num_embeddings, default=None)
    clipped = [layer for layer in found.layers if layer.q]
    weights = [p.weight for layer in clipped for p in (layer.q, layer.k)]
    scaled = [p.weight for layer in clipped for p in (layer.q_gain or layer.q, layer.k_gain or layer.k)]
    spec = {
        "layers": len(found.layers), "heads": found.heads, "kv_heads": found.kv_heads, "head_dim": found.head_dim,
        "hidden_size": vocabulary.embedding_dim if vocabulary is not None else 0,
        "vocab_size": vocabulary.num_embeddings if vocabulary is not None else 0,
        "attention": found.attention, "qk_norm": found.qk_norm,
        "optimizer": "+".join(type(o).__name__.lower() for o in optimizers) or None,
        "preset": _PRESETS.get(getattr(config, "model_type", None)),
        "master_fp32": masters.Masters(optimizers).declare(scaled) if scaled else -1,
        "compute_dtype": {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(weights[0].dtype) if weights else None,
    }
    if found.layers:
        spec.update(_norms(found.layers[0].block))
    return spec


def _norms(block):
    """Kind, epsilon and, where the class says it, placement of the norms in a block."""
    found = {}
    for module in block.modules():
        name = type(module).__name__.lower()
        if "rmsnorm" in name or "layernorm" in name:
            found["norm_kind"] = "rmsnorm" if "rmsnorm" in name else "layernorm"
            eps = getattr(module, "eps", None) or getattr(module, "variance_epsilon", None)
            found["norm_eps"] = float(eps) if eps else None
            break
    norm_first = getattr(block, "norm_first", None)  # torch's own TransformerEncoderLayer and DecoderLayer.
    if isinstance(norm_first, bool):
        found["norm_placement"] = "pre" if norm_first else "post"
    return found


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


def _place(group):
    """(rank, world size, what is wrong with the group or "") from torch.distributed where it is up, else from the
    launcher's environment.
    """
    import sys

    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        try:
            return distributed.get_rank(group), distributed.get_world_size(group), ""
        except Exception as error:  # Each torch has its own for what is no group.
            trouble = (f"group is {arguments.shown(group)}, wanted a process group ({type(error).__name__}); taken as "
                       "not given")
            return distributed.get_rank(), distributed.get_world_size(), trouble
    trouble = "" if group is None else (f"group is {arguments.shown(group)}, but torch.distributed is not initialized; "
                                        "taken as not given")
    rank = next((int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID")
                 if os.environ.get(name, "").isdigit()), 0)
    world = next((int(os.environ[name]) for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
                  if os.environ.get(name, "").isdigit()), 1)
    return rank, max(world, rank + 1), trouble


def _default_run():
    if os.environ.get("GYROSTAT_RUN"):
        return None  # The library reads it.
    name = os.environ.get("SLURM_JOB_NAME", "")
    if not name or name in _INTERACTIVE:
        return None
    return arguments.plain(name)
