"""Which tensors may be read: those that are all here.

A sharded tensor (DTensor of fully_shard or tensor parallelism, FSDP's flat parameter) answers a norm or a maximum with
a collective, or with the value of its own part. The first would hang the job where other ranks do not make the same
call, the second is a wrong number; so they are left alone. Subclasses that nobody here knows count as sharded.
"""

import torch

_WHOLE = {torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)}


def whole(tensor):
    """Whether reading `tensor` is a matter of this process alone."""
    return type(tensor) in _WHOLE


def shards_parameters(model):
    """Whether parameters of the model, or some of them, are only in part in this process."""
    return (any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
            or not all(whole(p) for p in model.parameters()))
