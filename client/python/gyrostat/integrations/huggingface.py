"""A callback for the Trainer of Hugging Face transformers.

    trainer = Trainer(..., callbacks=[GyrostatCallback(run="my-run", allow=("qk_clip",))])
"""

from gyrostat.integrations._kinds import possible
from gyrostat.integrations._loss import LossTap
from gyrostat.opening import watch

try:
    from transformers import TrainerCallback
except ImportError:  # Only the Trainer calls us, and it brings the class.
    TrainerCallback = object


class GyrostatCallback(TrainerCallback):
    """Reports at every on_step_end, which the Trainer calls after optimizer and scheduler, with its global step.

    The Trainer shows callbacks no per-step loss, so it is taken from the model's own output (`loss`, or the first of a
    tuple), averaged over micro-batches. Models whose loss the Trainer computes outside report none. Requests for a
    checkpoint and for a halt, where `allow` names them, become the Trainer's own; a rollback is no matter of callbacks
    and is refused. State is not put into the Trainer's
    checkpoints: a resumed run begins a new clip ledger, which is safe (no order outlives a restart), and caps on the
    rate that were in force are gone.
    """

    def __init__(self, **options):
        self._options = possible(options, ("rollback",))
        self.monitor = None  # Between on_train_begin and on_train_end.
        self._loss = None

    def on_train_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **kwargs):
        self.monitor = watch(model, optimizer, lr_scheduler, start_step=state.global_step, **self._options)
        self._loss = LossTap(model, self.monitor)

    def on_step_end(self, args, state, control, **kwargs):
        if self.monitor is not None:
            self.monitor.step(self._loss.take(), step=state.global_step)
            for request in self.monitor.requests():
                if request.kind == "checkpoint":
                    control.should_save = True
                elif request.kind == "halt":
                    control.should_save = control.should_training_stop = True
        return control

    def on_train_end(self, args, state, control, **kwargs):
        if self.monitor is not None:
            self._loss.remove()
            self.monitor.close()
            self.monitor = None
