"""Hidden states by boundary and gradient norms by layer. Everything stays on its device until the step's one copy."""

import functools
import itertools
import math
import sys

import torch

from gyrostat.stepping import WrappedStep
from gyrostat.whole import shards_parameters, whole

_JOINED_MAX = 1 << 20  # Gradient entries up to which joining them costs less than the calls it saves.
_NORM_FUNCTIONS = ("clip_grad_norm_", "clip_grads_with_norm_", "clip_grad_value_")


class HiddenStates:
    """Mean square and largest entry of the residual stream at block boundaries, over all tokens of the step.

    Boundary 0 is the input of the first block where it is its first positional argument or `hidden_states`;
    boundary i + 1 is the output of block i. Where boundary 0 is not seen, only the outputs are reported.
    """

    _FORWARDS_MAX = 64  # Kept apart; beyond, the step's means cover the newest forwards only.

    def __init__(self, blocks, fuse):
        self._fuse = fuse
        self._blocks = blocks
        self._seen = [[] for _ in range(len(blocks) + 1)]  # By boundary: (norm, least, largest, elements).

    def around(self, index):
        """For a Tap on block `index`."""
        block = self._blocks[index]

        def around(call, args, kwargs):
            output = call(*args, **kwargs)
            if not self._fuse.blown and block.training and torch.is_grad_enabled():
                try:
                    if index == 0:
                        self._add(0, args[0] if args else kwargs.get("hidden_states"))
                    self._add(index + 1, output)
                except Exception as error:
                    self._fuse.blow(error)
            return output

        return around

    def _add(self, boundary, value):
        if isinstance(value, (tuple, list)) and value:
            value = value[0]
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.numel() == 0:
            return
        if not whole(value):
            self._fuse.say(f"hidden states are {type(value).__name__}s, in part on other ranks; not measured")
            return
        x = value.detach()
        norm = torch.linalg.vector_norm(x, dtype=torch.float32 if x.element_size() < 4 else None)
        least, largest = torch.aminmax(x)
        seen = self._seen[boundary]
        seen.append((norm, least, largest, x.numel()))
        if len(seen) > self._FORWARDS_MAX:
            del seen[0]

    def report(self, report):
        """Adds hidden_ms and hidden_absmax since the last report, L + 1 long, or L without boundary 0; nothing where a
        block was not called, or not as often as the others."""
        seen, self._seen = self._seen, [[] for _ in self._seen]
        seen = seen if seen[0] else seen[1:]
        forwards = len(seen[0]) if seen else 0
        if not forwards or any(len(boundary) != forwards for boundary in seen):
            return
        elements = [sum(entry[3] for entry in boundary) for boundary in seen]

        def then(values):
            per = 3 * forwards
            parts = [values[i : i + per] for i in range(0, len(values), per)]
            squares = [sum(norm * norm for norm in part[0::3]) for part in parts]
            report.array("hidden_ms", [square / n for square, n in zip(squares, elements)])
            report.array("hidden_absmax", [_largest([-x for x in part[1::3]] + part[2::3]) for part in parts])

        report.later([value for boundary in seen for entry in boundary for value in entry[:3]], then)


def _largest(values):
    """The maximum, or NaN where there is one."""
    return math.nan if any(value != value for value in values) else max(values)


class Gradients:
    """L2 norms of the gradients, read inside optimizer.step: after unscaling, before the gradients are cleared.

    Several optimizers may share the model; the first to step in a boundary reads all gradients.
    """

    def __init__(self, model, blocks, fuse, optimizers=()):
        self._fuse = fuse
        self._params = [p for p in model.parameters() if p.requires_grad]
        self._of_model = {id(p): p for p in model.parameters()}  # Held, so that no other tensor gets such an id.
        self._optimizers = optimizers
        self._layers = len(blocks)
        self._model, self._blocks = model, blocks
        self._kinds = self._sort({}, ())
        self._settled = False
        self._sharded = None  # Known at the first reading: sharding comes after watch in some trainers.
        self._plan = None  # What _make_plan made for the parameters that had a gradient last time.
        self._norms = None  # 0-dim tensors, one for each position among `_measured`.
        self._measured = ()  # Of each norm, the position of a parameter that it is of.
        self._scale = None
        self._rate = None
        self._clipped = False  # Clipped by value, or in a way that did not show the norm.
        self.clips = False  # Whether the loop has ever clipped these gradients by their L2 norm.
        self._before_clip = None  # Global norm, as the clipping function saw it.

    def settle(self, weights, vocabularies):
        """The client has opened. weights: {id of a parameter that other ranks hold as well: what its square counts
        for here}. vocabularies: rows that an output head may have, beside those of the embeddings here.
        """
        self._kinds, self._plan, self._settled = self._sort(weights, vocabularies), None, True

    def _sort(self, weights, vocabularies):
        """[(group, weight)] of the parameters."""
        groups = _groups(self._model, self._blocks, self._params, vocabularies)
        return [(group, weights.get(id(p), 1.0)) for group, p in zip(groups, self._params)]

    def read(self, optimizer):
        """Before an optimizer's update. Only the first call since the last report does anything."""
        if self._norms is not None:
            return
        self._rate = optimizer.param_groups[0]["lr"]
        with torch.no_grad():
            self._read(optimizer)

    def _read(self, optimizer):
        grads = [p.grad for p in self._params]
        present = [grad is not None for grad in grads]
        if not any(present):
            return
        grads = [grad for grad in grads if grad is not None]
        if self._sharded is None:
            self._sharded = shards_parameters(self._model)
        if self._sharded or not all(map(whole, grads)):
            self._fuse.say("parameters are sharded over ranks, so their gradient norms are not measured here; give "
                           "mon.step(grad_norm=)")
            return
        if self._plan is None or self._plan[0] != present:
            self._plan = self._make_plan(present, grads)
        order, sizes, self._measured = self._plan[1:]
        if sizes:
            grads = torch._utils._flatten_dense_tensors([grads[at] for at in order]).split(sizes)
        else:
            grads = [g.coalesce().values() if g.is_sparse else g for g in grads]
        self._norms = torch._foreach_norm(grads)
        self._scale = getattr(optimizer, "grad_scale", None)  # Fused optimizers unscale inside their step.

    def _make_plan(self, present, grads):
        """(present, order, sizes, measured). A small model's gradients are first joined kind by kind, put in `order`
        and cut by `sizes`: for many tiny tensors that is quicker than a norm of each. `sizes` is None for the others,
        and before the kinds are settled. measured: of each norm, the position of a parameter in it.
        """
        here = [position for position, is_here in enumerate(present) if is_here]
        first = grads[0]
        alike = all(g.dtype == first.dtype and g.device == first.device and not g.is_sparse for g in grads)
        if not alike or not self._settled or sum(g.numel() for g in grads) > _JOINED_MAX:
            return present, None, None, here
        order = sorted(range(len(here)), key=lambda at: self._kinds[here[at]])
        sizes, measured = [], []
        for _, same in itertools.groupby(order, key=lambda at: self._kinds[here[at]]):
            same = list(same)
            sizes.append(sum(grads[at].numel() for at in same))
            measured.append(here[same[0]])
        return present, order, sizes, measured

    def clipping(self, norm, clipped):
        """A clipping function saw the global `norm` of the gradients of parameters with the ids `clipped`. None: it
        does not tell. Another model's parameters are no matter of ours."""
        updated = ()
        if clipped.isdisjoint(self._of_model):
            updated = self._updated()
            if clipped.isdisjoint(updated):
                return
        self.clips |= norm is not None
        if norm is None or not whole(norm) or not self._is_all(clipped, updated) or self._before_clip is not None:
            self._clipped = True
        else:
            self._before_clip = norm.detach()

    def are_mine(self, ids):
        """Whether a clipping function was given gradients of this model, or their masters'."""
        return not (ids.isdisjoint(self._of_model) and ids.isdisjoint(self._updated()))

    def _is_all(self, clipped, updated):
        """Whether these are the model's gradients, all and no others: its parameters', or their masters'."""
        mine = {id(p) for p in self._params if p.grad is not None}
        if mine and mine <= clipped:
            return clipped <= self._of_model.keys()
        # Apex has the optimizer update float32 copies, and those are clipped.
        return len(clipped) >= len(mine) and clipped == (updated or self._updated())

    def _updated(self):
        """Ids of what the optimizers would update now."""
        return {id(p) for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]
                if p.grad is not None}

    def report(self, report, given):
        """Adds learning rate and norms since the last report. given: the trainer's own global norm, which the report
        has already, or None. Norms are those before clipping where the clipping function told the norm."""
        norms, before, scale = self._norms, self._before_clip, self._scale
        clipped, rate = self._clipped, self._rate
        self._norms = self._before_clip = self._scale = self._rate = None
        self._clipped = False
        report.scalar("learning_rate", rate)
        if norms is None:
            return
        if clipped and given is None:
            self._fuse.say("gradients are clipped in a way that hides the norm before it: grad_norm and "
                           "layer_grad_norm are those after clipping; give mon.step(grad_norm=)")
        kinds = [self._kinds[position] for position in self._measured]
        extra = [t for t in (before, scale) if t is not None]

        def then(values):
            factor = 1.0 / values[-1] if scale is not None else 1.0
            scaled = [norm * factor for norm in values[: len(norms)]]
            squares = [norm * norm for norm in scaled]  # An overflow is an infinity, no exception.
            total = math.sqrt(sum(squares))
            if before is not None and total > 0:
                # All gradients were scaled by one factor: undo it for the parts.
                factor, total = values[len(norms)] / total, values[len(norms)]
                squares = [square * factor * factor for square in squares]
            sums = {}
            for (group, weight), square in zip(kinds, squares):
                if weight:  # Where another stage counts it all, nothing is said here.
                    sums[group] = sums.get(group, 0.0) + weight * square
            roots = {group: math.sqrt(square) for group, square in sums.items()}
            report.array("layer_grad_norm", [roots.get(layer) for layer in range(self._layers)])
            report.scalar("embedding_grad_norm", roots.get(self._layers))
            report.scalar("output_grad_norm", roots.get(self._layers + 1))
            if given is None and report.partial:  # Shares are added up (client/README.md, "One stream for all ranks").
                report.scalar("grad_norm_share", math.sqrt(sum(sums.values())))
            elif given is None:
                report.scalar("grad_norm", total)

        report.later(list(norms) + extra, then)


def _groups(model, blocks, params, vocabularies):
    """The group of each parameter: its layer, L for input embeddings, L + 1 for the output head, L + 2 for the rest.
    vocabularies: numbers of rows that an output head may have, beside those of the embeddings.
    """
    group = {}
    for index, block in enumerate(blocks):
        for p in block.parameters():
            group.setdefault(id(p), index)
    outside = [m for m in model.modules() if m is not model or not blocks]
    vocabularies = set(vocabularies)
    for module in outside:
        if isinstance(module, torch.nn.Embedding):
            vocabularies.add(module.num_embeddings)
            group.setdefault(id(module.weight), len(blocks))
    for module in outside:
        if isinstance(module, torch.nn.Linear) and module.out_features in vocabularies:
            for p in module.parameters():
                group.setdefault(id(p), len(blocks) + 1)
    return [group.get(id(p), len(blocks) + 2) for p in params]


class StepWrapper(WrappedStep):
    """Calls `before(optimizer)` inside optimizer.step, after its closure and before its update."""

    def __init__(self, optimizer, before, fuse):
        def around(original, *args, **kwargs):
            closure = args[0] if args else kwargs.get("closure")
            if fuse.blown:
                return original(*args, **kwargs)
            if callable(closure):
                def watched(*inner):
                    loss = closure(*inner)
                    with fuse.guard():
                        before(optimizer)
                    return loss

                if args:
                    args = (watched,) + args[1:]
                else:
                    kwargs["closure"] = watched
            else:
                with fuse.guard():
                    before(optimizer)
            return original(*args, **kwargs)

        super().__init__(optimizer, around)


class ClipWrapper:
    """Sees torch's gradient clipping, so that the norm before it can be reported.

    Replaces the functions in torch.nn.utils, and the same names in modules that imported them before. One wrapper
    serves every monitor of the process; the last to leave puts the functions back.
    """

    _listeners = []
    _limits = []
    _replaced = []  # (namespace, name, original)

    def __init__(self, listener, limit=None):
        """listener(norm or None, {id of each parameter with a gradient}) is called after each clipping. limit({id}) →
        the largest norm that a clipping by L2 norm may leave, or None: as the loop says.
        """
        if not self._listeners:
            self._install()
        self._listener, self._limit = listener, limit
        self._listeners.append(listener)
        if limit is not None:
            self._limits.append(limit)

    def remove(self):
        if self._listener in self._listeners:
            self._listeners.remove(self._listener)
        if self._limit in self._limits:
            self._limits.remove(self._limit)
        if not self._listeners:
            for namespace, name, original in self._replaced:
                if getattr(namespace.get(name), "_gyrostat", False):
                    namespace[name] = original
            self._replaced.clear()

    @classmethod
    def _install(cls):
        for name in _NORM_FUNCTIONS:
            original = getattr(torch.nn.utils, name, None)
            if original is None:
                continue
            wrapper = cls._wrap(name, original)
            for module in list(sys.modules.values()):
                namespace = getattr(module, "__dict__", None)
                if isinstance(namespace, dict) and namespace.get(name) is original:
                    cls._replaced.append((namespace, name, original))
                    namespace[name] = wrapper

    @classmethod
    def _wrap(cls, name, original):
        @functools.wraps(original)
        def wrapper(parameters, *args, **kwargs):
            if not isinstance(parameters, torch.Tensor):
                parameters = list(parameters)  # It may be a generator; it is read again below.
            given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
            ids = [id(p) for p in given if p.grad is not None]
            clipped = set(ids)
            if name == "clip_grad_norm_":
                norm_type = kwargs.get("norm_type", args[1] if len(args) > 1 else 2.0)
                args, kwargs = cls._lowered(args, kwargs, clipped) if _is_two(norm_type) else (args, kwargs)
                result = original(parameters, *args, **kwargs)
                norm = result if _is_two(norm_type) else None
            else:
                by_norm = name == "clip_grads_with_norm_"
                args, kwargs = cls._lowered(args, kwargs, clipped) if by_norm else (args, kwargs)
                result = original(parameters, *args, **kwargs)
                norm = kwargs.get("total_norm", args[1] if len(args) > 1 else None) if by_norm else None
            if len(clipped) < len(ids):
                norm = None  # It counts a gradient twice.
            for listener in list(cls._listeners):
                listener(norm, clipped)
            return result

        wrapper._gyrostat = True
        return wrapper

    @classmethod
    def _lowered(cls, args, kwargs, ids):
        """The clipping function's arguments, with max_norm at most what the monitors allow."""
        limits = [limit for limit in (each(ids) for each in cls._limits) if limit is not None]
        if not limits:
            return args, kwargs
        least = min(limits)
        if args:
            return (_at_most(args[0], least),) + args[1:], kwargs
        if "max_norm" in kwargs:
            return args, {**kwargs, "max_norm": _at_most(kwargs["max_norm"], least)}
        return args, kwargs


def _at_most(max_norm, least):
    try:
        return least if float(max_norm) > least else max_norm
    except (TypeError, ValueError):  # Let the function itself say so.
        return max_norm


def _is_two(norm_type):
    try:
        return float(norm_type) == 2.0
    except (TypeError, ValueError):
        return False
