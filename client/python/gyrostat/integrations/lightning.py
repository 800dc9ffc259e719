"""A callback for Lightning's Trainer (`lightning` or `pytorch_lightning`).

    trainer = Trainer(callbacks=[GyrostatCallback(run="my-run", allow=("qk_clip",))])
"""

import os

from gyrostat.integrations._kinds import possible
from gyrostat.integrations._loss import FORWARDS_MAX, mean
from gyrostat.opening import watch
from gyrostat.trouble import LOGGER

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError:  # Only the Trainer calls us, and it brings the class.
        Callback = object


class GyrostatCallback(Callback):
    """Reports once per optimizer step: at the batch end after which `trainer.global_step` has moved on.

    Lightning clips gradients before optimizer.step by its own means; where it calls torch's function, the norm before
    clipping is reported. Requests, where `allow` names them, are done after the batch: for a checkpoint the trainer
    saves `gyrostat/step=N.ckpt` in its `default_root_dir`, for a halt it stops. A rollback is no matter of callbacks
    and is refused.
    """

    def __init__(self, **options):
        super().__init__()
        self._options = possible(options, ("rollback",))
        self._state = None
        self.monitor = None
        self._losses = []
        self._stepped = 0

    def on_train_start(self, trainer, pl_module):
        self._stepped = trainer.global_step
        self.monitor = watch(pl_module, list(trainer.optimizers), start_step=self._stepped, **self._options)
        if self._state is not None:
            self.monitor.load_state_dict(self._state)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if self.monitor is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None and self.monitor.active and len(self._losses) < FORWARDS_MAX:
            self._losses.append(loss.detach() if hasattr(loss, "detach") else loss)
        if trainer.global_step != self._stepped:
            self._stepped = trainer.global_step
            self.monitor.step(mean(self._losses), step=self._stepped)
            self._losses.clear()
            kinds = {request.kind for request in self.monitor.requests()}
            if "checkpoint" in kinds:
                self._save(trainer)
            if "halt" in kinds:
                trainer.should_stop = True

    @staticmethod
    def _save(trainer):
        path = os.path.join(trainer.default_root_dir, "gyrostat", f"step={trainer.global_step}.ckpt")
        try:
            trainer.save_checkpoint(path)
        except Exception as error:  # As little as anything of ours may this end the training.
            LOGGER.warning("the checkpoint that was asked for was not saved in %s: %r", path, error)

    def on_train_end(self, trainer, pl_module):
        if self.monitor is not None:
            self.monitor.close()
            self.monitor = None

    def state_dict(self):
        return self.monitor.state_dict() if self.monitor is not None else self._state or {}

    def load_state_dict(self, state_dict):
        self._state = state_dict or None
        if self.monitor is not None and self._state:
            self.monitor.load_state_dict(self._state)
