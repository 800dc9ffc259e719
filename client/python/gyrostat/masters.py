"""Finds the float32 values that an optimizer really updates.

If only the working copy of a weight is scaled, the next optimizer step brings the old values back. A master is
known by its value: a float32 tensor of the same shape that rounds to the weight exactly. So no list of optimizers is
needed, and a tensor that merely has a promising name is not believed.

Distributed optimizers keep only a flat slice of it on each rank. Where a slice begins cannot be told from its values,
so it is read where they say it: Megatron-LM's distributed optimizer, DeepSpeed's ZeRO, or `param.gyrostat_master`, a
pair (float32 slice, first element) that a loop of one's own may set.
"""

import torch

from gyrostat.scaling import Part
from gyrostat.whole import whole

_ATTRIBUTES = ("main_param", "master_param", "_master", "fp32_param")  # Megatron and others hang it on the parameter.
_LISTS = ("fp32_from_float16_groups", "fp32_from_fp16_groups", "shard_fp32_from_float16_groups", "fp32_groups",
          "master_params", "_master_params")  # Megatron and Apex keep lists in the optimizer.


class UnknownMaster(Exception):
    """Nobody can say what the optimizer updates; the text says why."""


class Masters:
    def __init__(self, optimizers):
        self._optimizers = list(optimizers)

    def of(self, param, title):
        """What the optimizer updates for `param`, as a Part in float32 (itself where it is float32; a slice, perhaps
        empty, where ranks share it), or None: the optimizer updates the narrow values themselves. Raises UnknownMaster.
        """
        sliced = self.slice_of(param, title)
        if sliced is not None:
            return sliced
        if not self._optimizers:
            raise UnknownMaster(f"no optimizer was given to watch(), so the master of {title} is not known")
        held = self._holds(param)
        if param.dtype in (torch.float32, torch.float64):
            if held:
                return Part(param)
            raise UnknownMaster(f"{title} is not among the optimizer's parameters")
        found = [t for t in self._candidates(param) if self._matches(t, param)]
        distinct = {t.data_ptr(): t for t in found}
        if len(distinct) == 1:
            return Part(found[0])
        if len(distinct) > 1:
            raise UnknownMaster(f"{len(distinct)} float32 tensors could be the master of {title}")
        if held:
            return None
        raise UnknownMaster(f"{title} is {_name(param.dtype)} and not among the optimizer's parameters, "
                            "and no float32 master of it was found")

    def slice_of(self, param, title):
        """The slice of the master that this rank holds, or None where the master is not sliced."""
        for source in (_own_slice, self._megatron_slice, _deepspeed_slice):
            said = source(param)
            if said is None:
                continue
            tensor, begin = said
            if not isinstance(tensor, torch.Tensor) or not isinstance(begin, int):
                raise UnknownMaster(f"the master of {title} is sliced, and where its slice begins is not known")
            end = begin + tensor.numel()
            if tensor.dim() != 1 or tensor.dtype != torch.float32 or begin < 0 or end > param.numel():
                raise UnknownMaster(f"the slice of the master of {title} is {_name(tensor.dtype)} {list(tensor.shape)} "
                                    f"from element {begin}, wanted a float32 vector inside {param.numel()} elements")
            part = Part(tensor, begin, tuple(param.shape))
            if not _agrees(part, param):
                raise UnknownMaster(f"the slice of the master of {title} does not round to its elements from {begin}")
            return part
        return None

    def _megatron_slice(self, param):
        if not getattr(param, "main_param_sharded", False):
            return None
        begin = getattr(param, "main_param_shard_start", None)
        for optimizer in self._optimizers:
            ranges = getattr(optimizer, "_get_model_param_range_map", None)
            try:
                begin = ranges(param)["param"].start if ranges is not None and begin is None else begin
            except (AttributeError, KeyError):
                continue
        master = getattr(param, "main_param", None)
        if master is None and begin is None:  # All of it is another rank's.
            return torch.empty(0), 0
        return master, begin

    def declare(self, params):
        """What to tell the daemon about these parameters: 1 masters are float32, 0 some are not, -1 not known yet."""
        narrow = [p for p in params if p.dtype not in (torch.float32, torch.float64)]
        try:
            if narrow and not any(self._state(p) or self.slice_of(p, "weight") for p in narrow):
                return -1  # Optimizers make their masters in the first step.
            return int(all(self.of(p, "weight") is not None for p in params))
        except UnknownMaster:
            return -1

    def _holds(self, param):
        """Whether the optimizer updates the very elements of `param`: as itself, in slices of it, or inside a larger
        flat parameter that it is a view of.
        """
        return any(param is p or _overlap(param, p) for optimizer in self._optimizers
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


def _own_slice(param):
    said = getattr(param, "gyrostat_master", None)
    return None if said is None else tuple(said)


def _deepspeed_slice(param):
    if not hasattr(param, "_hp_mapping"):
        return None
    mapping = param._hp_mapping
    if mapping is None:  # All of it is another rank's.
        return torch.empty(0), 0
    return getattr(mapping, "hp_fragment", None), getattr(mapping.lp_fragment_address, "start", None)


def _agrees(part, param):
    """Whether a slice rounds to the parameter's elements, up to one unit in the last place: a clip rounds slice and
    working copy on their own, and the optimizer's next gather puts that right.
    """
    begin, end = part.places
    with torch.no_grad():
        narrow = param.detach().reshape(-1)[begin:end].float()
        error = (part.tensor.detach().to(narrow.device) - narrow).abs()
        return bool((error <= narrow.abs() * 2 * torch.finfo(param.dtype).eps).all())


def _overlap(a, b):
    """Whether two contiguous tensors of one type share memory."""
    flat = hasattr(b, "_param_infos")  # FSDP's, whose local elements are plain memory.
    if not (isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.device == b.device and (flat or whole(b))):
        return False
    if a.data_ptr() == 0 or b.data_ptr() == 0:
        return False
    return (a.data_ptr() < b.data_ptr() + b.numel() * b.element_size()
            and b.data_ptr() < a.data_ptr() + a.numel() * a.element_size())


def _flat(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)


def _name(dtype):
    return str(dtype).rpartition(".")[2]
