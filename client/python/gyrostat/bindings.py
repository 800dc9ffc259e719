"""Are the parameters that orders change still the ones that were bound? (protocol.md section 4.8)

Checked at every step, by pointer, shape and type: a model that was rebuilt, moved or cast behind our back would be
scaled where nobody reads it any more.
"""


class Bindings:
    def __init__(self, named):
        """named() → [(title, tensor)] of what is bound now."""
        self._named = named
        self._seen = None

    def trouble(self):
        """What has changed since the first call, in a sentence, or "". """
        now = [(title, tensor.data_ptr(), tuple(tensor.shape), tensor.dtype) for title, tensor in self._named()]
        if self._seen is None:
            self._seen = now
        if now == self._seen:
            return ""
        for before, after in zip(self._seen, now):
            for name, old, new in zip(("memory", "shape", "type"), before[1:], after[1:]):
                if old != new:
                    change = "" if name == "memory" else f" from {old} to {new}"
                    return (f"{after[0]} has changed its {name}{change} since it was bound; load_state_dict or reset "
                            "binds anew")
        return f"{len(now)} parameters are bound, {len(self._seen)} were; load_state_dict or reset binds anew"

    def forget(self):
        """The next call of trouble() binds anew."""
        self._seen = None
