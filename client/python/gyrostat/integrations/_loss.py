"""Takes the loss from a model's own output, where a framework shows it to nobody."""

FORWARDS_MAX = 4096  # Micro-batches of one step; more means that nobody takes.


class LossTap:
    """Mean loss of the training forwards since the last take. Never raises."""

    def __init__(self, model, monitor):
        """Taps nothing where the monitor is inert."""
        self._losses = []
        self._tap = None
        if monitor.active:
            from gyrostat.tap import Tap

            def around(call, args, kwargs):
                output = call(*args, **kwargs)
                if model.training and len(self._losses) < FORWARDS_MAX:
                    loss = _loss_of(output)
                    if getattr(loss, "requires_grad", False) and loss.numel() == 1:
                        self._losses.append(loss.detach().reshape(()))
                return output

            try:
                self._tap = Tap(model, around)
            except TypeError:
                self._tap = None

    def take(self):
        """A 0-dim tensor, or None where no loss was seen."""
        losses, self._losses = self._losses, []
        return mean(losses)

    def remove(self):
        if self._tap is not None:
            self._tap.remove()


def mean(losses):
    """Of tensors or numbers; None where there are none or they do not add up."""
    try:
        return sum(losses) / len(losses)
    except (ArithmeticError, RuntimeError, TypeError):
        return None


def _loss_of(output):
    if isinstance(output, dict):
        return output.get("loss")
    if isinstance(output, (tuple, list)):
        return output[0] if output else None
    return getattr(output, "loss", None)
