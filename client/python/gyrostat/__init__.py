"""gyrostat: watches a training loop, and applies the interventions that it allows.

    import gyrostat
    with gyrostat.watch(model, optimizer, scheduler, run="my-run", allow=("qk_clip",)) as mon:
        for batch in data:
            ...
            optimizer.step(); scheduler.step(); mon.step(loss)

Nothing here raises into the loop, prints, or starts a Python thread: trouble is one record on the logger `gyrostat`.
Without an address (argument or GYROSTAT_ADDRESS) everything is inert. Importing this package does not import torch.
"""

from gyrostat._abi import VERSION as __version__

__all__ = ["Monitor", "Place", "max_logits", "max_logits_from_lse", "watch", "weight_checksum", "__version__"]

_HOMES = {
    "watch": "gyrostat.opening",
    "Monitor": "gyrostat.monitor",
    "Place": "gyrostat.ranks",
    "max_logits": "gyrostat.logits",
    "max_logits_from_lse": "gyrostat.logits",
    "weight_checksum": "gyrostat.checksum",
}


def __getattr__(name):
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gyrostat' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
