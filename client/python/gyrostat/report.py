"""Collects one step's values where they are, brings the tensors over together, and records everything."""

import ctypes
import math

import torch

from gyrostat import _abi
from gyrostat.arguments import shown
from gyrostat.whole import whole


class Report:
    """Of one step. Adding is cheap: device values wait for `send`, which is the only place that waits for a device."""

    def __init__(self, fuse, layout):
        """layout: a layout.Layout; None: everything is here."""
        self._fuse = fuse
        self._layout = layout
        self._scalars = []  # (name, float)
        self._arrays = []  # (name, [float])
        self._waiting = []  # (0-dim tensors, what to do with their values)
        self._rows = None  # ({layer: [heads]}, (layers, heads), kind)

    @property
    def partial(self):
        """Whether norms of what is here are shares of the whole model's."""
        return self._layout is not None and self._layout.partial

    def scalar(self, name, value):
        """A number, or a tensor (its mean). None is left out; what is neither is said once and left out. Returns
        whether it was taken."""
        if value is None:
            return False
        about = f"mon.step: {name}"
        if isinstance(value, torch.Tensor):
            if not whole(value):
                self._fuse.say(f"{about} is a {type(value).__name__}, which may be in part on other ranks; left out. "
                               "Give the whole value", about=about)
                return False
            if _is_plain(value):
                value = value.detach()
                value = value.reshape(()) if value.numel() == 1 else value.float().mean()
                self.later([value], lambda values: self.scalar(name, values[0]))
                return True
        else:
            try:
                self._scalars.append((name, float(value)))
                return True
            except Exception:  # Whatever a value of somebody's own class may raise.
                pass
        self._fuse.say(f"{about} is {shown(value)}, wanted a number or a dense real tensor that is not empty; left out",
                       about=about)
        return False

    def array(self, name, values):
        """A list of floats for the layers here, or the boundaries around them; None among them where nothing was
        measured.
        """
        values = self._layout.spread(values) if self._layout is not None else values
        self._arrays.append((name, [_abi.ABSENT if value is None else value for value in values]))

    def given(self, name, values):
        """As array, of a list or a 1-D tensor."""
        if isinstance(values, torch.Tensor):
            self.later(list(values), lambda numbers: self.array(name, numbers))
        else:
            self.array(name, values)

    def later(self, tensors, then):
        """then([floats]) is called once the 0-dim `tensors` have been brought over; it may add scalars and arrays."""
        self._waiting.append((tensors, then))

    def attention(self, rows, kind):
        """{layer of the whole model: [heads of that layer here] float32 tensor}, reported as [layers, heads]."""
        self._rows = rows, kind

    def send(self, client, check):
        """Records everything with `client`, giving every status to `check`."""
        flat = [tensor for tensors, _ in self._waiting for tensor in tensors]
        values = iter(_fetch(flat))
        for tensors, then in self._waiting:
            then([next(values) for _ in tensors])
        for name, value in self._scalars:
            check(client.scalar(name, value))
        for name, values in self._arrays:
            buffer = (ctypes.c_float * len(values))(*values)
            check(client.array(name, ctypes.addressof(buffer), len(values)))
        if self._rows is not None:
            rows, kind = self._rows
            matrix = _matrix(rows, self._layout)
            check(client.attention(matrix.data_ptr(), matrix.numel(), kind))


def _is_plain(tensor):
    """Whether it has a mean that is a real number."""
    return (tensor.layout is torch.strided and tensor.device.type != "meta" and not tensor.is_complex()
            and not tensor.is_quantized and tensor.numel() > 0)


def _fetch(tensors):
    """The values of 0-dim tensors as floats: one copy for each device."""
    by_device = {}
    for position, tensor in enumerate(tensors):
        by_device.setdefault(tensor.device, []).append(position)
    values = [0.0] * len(tensors)
    for positions in by_device.values():
        together = torch.stack([tensors[position] for position in positions]).tolist()
        for position, value in zip(positions, together):
            values[position] = value
    return values


def _matrix(rows, layout):
    """[layers, heads] float32 in host memory; what is missing, or -inf (all masked), is absent."""
    layers, heads, first = layout.layers, layout.heads, layout.first_head
    device = next(iter(rows.values())).device
    absent = None
    lines = []
    for layer in range(layers):
        line = rows.get(layer)
        if line is None or len(line) != heads:
            absent = torch.full((heads,), -math.inf, device=device) if absent is None else absent
            line = absent if line is None else torch.cat([absent[:first], line.to(device),
                                                          absent[: max(0, heads - first - len(line))]])
        lines.append(line if line.device == device else line.to(device))
    return torch.stack(lines).clamp_(min=_abi.ABSENT).cpu()
