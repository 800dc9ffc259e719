"""Sees a module being called, without touching anything that others can trip over.

The module's class is swapped for a subclass of the same name that only overrides `__call__` (torch's fully_shard
does the same). So unlike an instance attribute it sees the replicas of nn.DataParallel rightly, unlike a pair of
hooks it is exception-safe, and copies and pickles of the module are of the original class: an EMA copy is not
watched.
"""

import copyreg

import torch


def _compiling():
    compiler = getattr(torch, "compiler", None)
    return compiler is not None and hasattr(compiler, "is_compiling") and compiler.is_compiling()


class Tap:
    """A swapped class. Raises TypeError where the module cannot be tapped (TorchScript, exotic layouts)."""

    def __init__(self, module, around):
        """around(call, args, kwargs) → output must call `call(*args, **kwargs)` exactly once and let its exceptions
        pass.

        Inside torch.compile `around` is not called: a compiled graph has no room for it.
        """
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError("a TorchScript module cannot be watched from Python")
        self._module = module
        self._original = original = type(module)
        self._around = around

        def __call__(instance, *args, **kwargs):
            around = self._around
            if around is None or _compiling():
                return original.__call__(instance, *args, **kwargs)
            return around(original.__call__.__get__(instance), args, kwargs)

        def __reduce_ex__(instance, protocol):
            reduced = original.__reduce_ex__(instance, protocol)
            if not isinstance(reduced, tuple):
                return reduced
            args = tuple(original if value is self._swapped else value for value in reduced[1])
            # pickle insists that what copyreg.__newobj__ makes is of the instance's own class.
            make = object.__new__ if reduced[0] is copyreg.__newobj__ else reduced[0]
            return (make, args) + reduced[2:]

        self._swapped = type(original)(original.__name__, (original,), {
            "__call__": __call__,
            "__reduce_ex__": __reduce_ex__,
            "__module__": original.__module__,
            "__qualname__": original.__qualname__,
            "__doc__": original.__doc__,
        })
        module.__class__ = self._swapped

    def remove(self):
        """Gives the module its class back; where somebody swapped it since, the tap just falls silent."""
        self._around = None
        if type(self._module) is self._swapped:
            self._module.__class__ = self._original
