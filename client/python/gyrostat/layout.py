"""Where what is on this rank stands in the whole model."""

import dataclasses


@dataclasses.dataclass
class Layout:
    """Of `layers` layers with `heads` heads in the whole model, `held` layers from `first_layer` on are here, and their
    heads from `first_head` on.
    """

    layers: int
    heads: int
    first_layer: int = 0
    held: int = None
    first_head: int = 0
    partial: bool = False  # Other ranks hold the rest: norms of what is here are shares.

    def __post_init__(self):
        if self.held is None:
            self.held = self.layers

    def holds(self, layer):
        return not 0 <= layer < self.layers or self.first_layer <= layer < self.first_layer + self.held

    def spread(self, values):
        """Values of the layers here (or of the boundaries around them: one more), as a list over the whole model, None
        where it is another rank's.
        """
        after = self.layers - self.first_layer - self.held
        return [None] * self.first_layer + list(values) + [None] * max(0, after)
