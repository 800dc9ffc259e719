"""Something around optimizer.step, put there and taken away again."""

import functools
import types


class WrappedStep:
    """Calls `around(original, *args, **kwargs)` for optimizer.step(*args, **kwargs), until it is removed.

    The wrapper is a bound method, as torch's schedulers want it (they take it apart), and optimizers do not copy or
    pickle it (their state is made from param_groups and state alone).
    """

    def __init__(self, optimizer, around):
        original = optimizer.step
        self._optimizer = optimizer
        self._had = optimizer.__dict__.get("step")

        @functools.wraps(original)
        def step(instance, *args, **kwargs):
            if self._wrapper is None:
                return original(*args, **kwargs)
            return around(original, *args, **kwargs)

        self._wrapper = types.MethodType(step, optimizer)
        optimizer.step = self._wrapper

    def remove(self):
        """Puts the old step back; where somebody wrapped it since, this wrapper just passes through."""
        if self._optimizer.__dict__.get("step") is self._wrapper:
            if self._had is None:
                del self._optimizer.step
            else:
                self._optimizer.step = self._had
        self._wrapper = None
