"""Finds the float32 values that an optimizer really updates.

If only the working copy of a weight is scaled, the next optimizer step brings the old values back. A master is
known by its value: a float32 tensor of the same shape that rounds to the weight exactly. So no list of optimizers is
needed, and a tensor that merely has a promising name is not believed.
"""

import torch

_ATTRIBUTES = ("main_param", "master_param", "_master", "fp32_param")  # Megatron and others hang it on the parameter.
_LISTS = ("fp32_from_float16_groups", "fp32_from_fp16_groups", "shard_fp32_from_float16_groups", "fp32_groups",
          "master_params", "_master_params")  # Megatron and Apex keep lists in the optimizer.


class UnknownMaster(Exception):
    """Nobody can say what the optimizer updates; the text says why."""


class Masters:
    def __init__(self, optimizers):
        self._optimizers = list(optimizers)

    def of(self, param, title):
        """The float32 tensor that the optimizer updates for `param` (itself where it is float32), or None: the
        optimizer updates the narrow values themselves. Raises UnknownMaster.
        """
        if not self._optimizers:
            raise UnknownMaster(f"no optimizer was given to watch(), so the master of {title} is not known")
        held = self._holds(param)
        if param.dtype in (torch.float32, torch.float64):
            if held:
                return param
            raise UnknownMaster(f"{title} is not among the optimizer's parameters")
        found = [t for t in self._candidates(param) if self._matches(t, param)]
        distinct = {t.data_ptr(): t for t in found}
        if len(distinct) == 1:
            return found[0]
        if len(distinct) > 1:
            raise UnknownMaster(f"{len(distinct)} float32 tensors could be the master of {title}")
        if held:
            return None
        raise UnknownMaster(f"{title} is {_name(param.dtype)} and not among the optimizer's parameters, "
                            "and no float32 master of it was found")

    def declare(self, params):
        """What to tell the daemon about these parameters: 1 masters are float32, 0 some are not, -1 not known yet."""
        narrow = [p for p in params if p.dtype not in (torch.float32, torch.float64)]
        if narrow and not any(self._state(p) for p in narrow):
            return -1  # Optimizers make their masters in the first step.
        try:
            return int(all(self.of(p, "weight") is not None for p in params))
        except UnknownMaster:
            return -1

    def _holds(self, param):
        return any(param is p for optimizer in self._optimizers
                   for group in optimizer.param_groups for p in group["params"])

    def _state(self, param):
        for optimizer in self._optimizers:
            state = getattr(optimizer, "state", None)
            if state is not None and param in state:
                return state[param]
        return {}

    def _candidates(self, param):
        yield from (getattr(param, name, None) for name in _ATTRIBUTES)
        state = self._state(param)
        yield from (state.values() if isinstance(state, dict) else ())
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]
            for name in _LISTS:
                yield from _flat(getattr(optimizer, name, None))
            stash = getattr(optimizer, "_amp_stash", None)  # Apex O2.
            yield from _flat(getattr(stash, "all_fp32_from_fp16_params", None))

    @staticmethod
    def _matches(candidate, param):
        if not isinstance(candidate, torch.Tensor) or candidate.dtype != torch.float32:
            return False
        if candidate.shape != param.shape or candidate.device != param.device:
            return False
        with torch.no_grad():
            return torch.equal(candidate.detach().to(param.dtype), param.detach())


def _flat(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)


def _name(dtype):
    return str(dtype).rpartition(".")[2]
