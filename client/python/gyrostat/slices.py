"""Parameters, or their float32 masters, that are here only as flat slices: which elements of which are this rank's?

FSDP keeps all parameters of a module in one flat parameter, of which each rank holds a stretch that may begin and end
in the middle of a row or a head; distributed optimizers do so with masters (masters.py). FSDP rebinds what its modules
show as their weights; here they are found by what its flat parameter says of itself, under torch 1.13's names or those
of torch 2.
"""

import itertools

from gyrostat import masters
from gyrostat.scaling import Part


class Slices:
    """Of one model. refresh() before elements are used: FSDP moves its flat parameters' memory about."""

    def __init__(self, model, found, optimizers):
        self._model, self._layers = model, found.layers
        self._masters = masters.Masters(optimizers)
        self.refresh()

    def refresh(self):
        """Binds each projection to the slices that are here now."""
        here = {}
        for flat in _flats(self._model):
            here.update(_pieces(flat))
        for layer in self._layers if here else ():
            for projection in filter(None, (layer.q, layer.k)):
                for name in filter(None, (projection.weight_name, projection.bias_name)):
                    part = here.get((id(projection.module), name))
                    if part is not None:
                        projection.parts[name] = part

    def any(self):
        return any(self._part(layer, key) is not None for layer in self._layers if layer.q is not None
                   for key in (0, 1))

    def rows(self, position, key):
        """[(first, end)]: of the rows of the heads that are here, numbered from 0 without gaps, those whose first
        element this rank holds. None: all, nothing is sliced.
        """
        layer = self._layers[position]
        part = self._part(layer, key) if layer.q is not None else None
        if part is None:
            return None
        projection = (layer.q, layer.k)[key]
        columns = part.shape[1] if projection.out_dim == 0 else 1
        begin, end = part.places
        spans = []
        number = 0
        for start, rope in itertools.zip_longest(projection.starts, projection.rope_starts):
            rows = list(range(start, start + projection.width))
            rows += range(rope, rope + projection.rope_width) if rope is not None else ()
            for row in rows:
                if begin <= row * columns < end:
                    if spans and spans[-1][1] == number:
                        spans[-1] = (spans[-1][0], number + 1)
                    else:
                        spans.append((number, number + 1))
                number += 1
        return spans

    def _part(self, layer, key):
        """The slice of the weight, or of its master; None: it is whole."""
        projection = (layer.q, layer.k)[key]
        if projection.weight_name in projection.parts:
            return projection.parts[projection.weight_name]
        try:
            return self._masters.slice_of(projection.weight, projection.title)
        except masters.UnknownMaster:  # Said where it matters.
            return None


def _flats(model):
    """FSDP's flat parameters in the model."""
    seen = {}
    for module in model.modules():
        handle = getattr(module, "_handle", None)
        for candidate in [*module._parameters.values(), getattr(handle, "flat_param", None)]:
            if hasattr(candidate, "_param_infos") and hasattr(candidate, "_shapes"):
                seen[id(candidate)] = candidate
    return seen.values()


def _pieces(flat):
    """{(id of the module, parameter name): Part} of everything in a flat parameter, empty where it is elsewhere."""
    local = getattr(flat, "_local_shard", None)
    local = flat.detach() if local is None else local.detach()
    pieces = {}
    for i, (begin, count, position) in enumerate(_spans(flat)):
        name, module = flat._param_infos[i][:2]
        pieces[id(module), name] = Part(local[position : position + count], begin, tuple(flat._shapes[i]))
    return pieces


def _spans(flat):
    """(first element, elements, where they begin in the local shard) for each parameter."""
    infos = getattr(flat, "_shard_param_infos", None)  # torch 2.
    if infos is not None:
        return [(info.intra_param_start_idx, info.numel_in_shard, info.offset_in_shard) if info.in_shard else (0, 0, 0)
                for info in infos]
    if not hasattr(flat, "_shard_param_offsets"):  # Not sharded.
        starts = [0, *itertools.accumulate(shape.numel() for shape in flat._shapes)]
        return [(0, shape.numel(), start) for shape, start in zip(flat._shapes, starts)]
    spans = [(0, 0, 0)] * len(flat._shapes)
    position = 0
    for i, (first, last) in enumerate(flat._shard_param_offsets, flat._shard_indices[0]):  # Both included.
        spans[i] = (first, last - first + 1, position)
        position += last - first + 1
    return spans

