"""The callbacks, driven by doubles of the two trainers: neither framework is in Debian, so only the order and arguments
of their hooks, as documented, are checked here."""

import types

import pytest
import torch

import fakes
import models
from gyrostat.integrations import huggingface, lightning


class LanguageModel(models.Model):
    """Returns what Hugging Face models return."""

    def forward(self, tokens):
        logits = super().forward(tokens)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


def hugging_face_trainer(callback, model, optimizer, steps, accumulate=2):
    """transformers.Trainer's inner loop, as far as callbacks see it. Returns the mean loss of each step."""
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    args, control = types.SimpleNamespace(), types.SimpleNamespace()
    state = types.SimpleNamespace(global_step=10)
    common = {"processing_class": None, "train_dataloader": None}
    callback.on_train_begin(args, state, control, model=model, optimizer=optimizer, lr_scheduler=scheduler, **common)
    losses = []
    for step in range(steps):
        micro = [model(models.batch(step * accumulate + i))["loss"] for i in range(accumulate)]
        for loss in micro:
            (loss / accumulate).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        state.global_step += 1
        callback.on_step_end(args, state, control, model=model, optimizer=optimizer, lr_scheduler=scheduler, **common)
        model.eval()
        model(models.batch(99))
        model.train()
        losses.append(float(sum(micro) / accumulate))
    callback.on_train_end(args, state, control, model=model, **common)
    return losses


def test_hugging_face(fake_library):
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    callback = huggingface.GyrostatCallback(run="r", address="fake:1", allow=("qk_clip",))
    losses = hugging_face_trainer(callback, model, optimizer, 3)
    client = fake_library.last
    assert client.options["run"] == "r" and client.options["allow"] == "qk_clip" and client.closed
    assert client.steps == [11, 12, 13]
    assert [report["loss"] for report in client.reports] == pytest.approx(losses, rel=1e-6)
    assert all("attn_logit_max" in report and "grad_norm" in report for report in client.reports)
    assert type(model) is LanguageModel and callback.monitor is None


def test_hugging_face_without_an_address_leaves_the_model_alone():
    model = LanguageModel()
    callback = huggingface.GyrostatCallback()
    callback.on_train_begin(None, types.SimpleNamespace(global_step=0), None, model=model)
    assert type(model) is LanguageModel and not callback.monitor.active
    callback.on_step_end(None, types.SimpleNamespace(global_step=1), None)
    callback.on_train_end(None, None, None)


@pytest.mark.parametrize("output", [torch.zeros(2), (), None, {"loss": "no"}, (torch.zeros(3),)])
def test_outputs_without_a_loss_report_none(fake_library, output):
    model = torch.nn.Module()
    model.forward = lambda: output
    callback = huggingface.GyrostatCallback(address="fake:1")
    state = types.SimpleNamespace(global_step=0)
    callback.on_train_begin(None, state, None, model=model)
    assert model() is output
    callback.on_step_end(None, state, None)
    assert fake_library.last.reports == [{}] and callback.monitor.active


@pytest.mark.parametrize("kind", ["checkpoint", "halt"])
def test_requests_become_the_trainers_own(fake_library, kind):
    callback = huggingface.GyrostatCallback(address="fake:1", allow=(kind,))
    state, control = types.SimpleNamespace(global_step=0), types.SimpleNamespace(should_save=False,
                                                                                 should_training_stop=False)
    callback.on_train_begin(None, state, control, model=models.Model())
    assert callback.on_step_end(None, state, control) is control and not control.should_save
    fake_library.last.orders.append(fakes.register_order(kind, [(4, 0.0, 1.0)]))
    callback.on_step_end(None, state, control)
    assert control.should_save and control.should_training_stop == (kind == "halt")
    callback.on_train_end(None, state, control)
    saved = []
    stopped = types.SimpleNamespace(global_step=1, optimizers=[], should_stop=False, default_root_dir="/runs",
                                    save_checkpoint=saved.append)
    callback = lightning.GyrostatCallback(address="fake:1", allow=(kind,))
    callback.on_train_start(stopped, models.Model())
    fake_library.last.orders.append(fakes.register_order(kind, [(4, 0.0, 1.0)]))
    stopped.global_step = 2
    callback.on_train_batch_end(stopped, None, None, None, 0)
    assert stopped.should_stop == (kind == "halt")
    assert saved == (["/runs/gyrostat/step=2.ckpt"] if kind == "checkpoint" else [])


def test_a_checkpoint_that_cannot_be_saved_ends_nothing(fake_library, caplog):
    def save_checkpoint(path):
        raise OSError("no space")

    trainer = types.SimpleNamespace(global_step=1, optimizers=[], should_stop=False, default_root_dir="/runs",
                                    save_checkpoint=save_checkpoint)
    callback = lightning.GyrostatCallback(address="fake:1", allow=("checkpoint",))
    callback.on_train_start(trainer, models.Model())
    fake_library.last.orders.append(fakes.register_order("checkpoint", [(4, 0.0, 1.0)]))
    trainer.global_step = 2
    callback.on_train_batch_end(trainer, None, None, None, 0)
    assert "was not saved in /runs/gyrostat/step=2.ckpt: OSError('no space')" in caplog.text and callback.monitor.active


@pytest.mark.parametrize("integration", [huggingface, lightning])
def test_a_rollback_that_no_callback_can_do_is_not_allowed(fake_library, integration, caplog):
    callback = integration.GyrostatCallback(address="fake:1", allow=("halt", "rollback"))
    trainer = types.SimpleNamespace(global_step=1, optimizers=[])
    if integration is huggingface:
        callback.on_train_begin(None, trainer, None, model=models.Model())
    else:
        callback.on_train_start(trainer, models.Model())
    assert fake_library.last.options["allow"] == "halt"
    assert "allow names rollback, which no callback of this trainer can carry out" in caplog.text


def lightning_trainer(callback, module, optimizer, batches, accumulate=2):
    """lightning.Trainer's loop with a closure, as far as callbacks see it. Returns each step's mean loss."""
    trainer = types.SimpleNamespace(global_step=5, optimizers=[optimizer])
    callback.on_train_start(trainer, module)
    losses, micro = [], []
    for index in range(batches):
        seen = []

        def closure():
            loss = models.loss_of(module, models.batch(index))
            if index % accumulate == 0:
                optimizer.zero_grad()
            (loss / accumulate).backward()
            seen.append(loss.detach())
            return loss

        if (index + 1) % accumulate:
            closure()
        else:
            optimizer.step(closure)
            trainer.global_step += 1
        micro.append(float(seen[-1]))
        if len(micro) == accumulate:
            losses.append(sum(micro) / accumulate)
            micro.clear()
        callback.on_train_batch_end(trainer, module, {"loss": seen[-1]}, None, index)
    callback.on_train_end(trainer, module)
    return losses


def test_lightning(fake_library):
    module = models.Model()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    callback = lightning.GyrostatCallback(run="r", address="fake:1")
    losses = lightning_trainer(callback, module, optimizer, 6)
    client = fake_library.last
    assert client.steps == [6, 7, 8] and client.closed
    assert [report["loss"] for report in client.reports] == pytest.approx(losses, rel=1e-6)
    assert all("attn_logit_max" in report and "grad_norm" in report for report in client.reports)


def test_lightning_keeps_state_in_its_checkpoints(fake_library):
    module = models.Model()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    trainer = types.SimpleNamespace(global_step=0, optimizers=[optimizer])
    callback = lightning.GyrostatCallback(address="fake:1")
    assert callback.state_dict() == {}
    callback.on_train_start(trainer, module)
    state = callback.state_dict()
    assert state["client"] == b"ledger".hex()
    callback.on_train_end(trainer, module)
    again = lightning.GyrostatCallback(address="fake:1")
    again.load_state_dict(state)
    again.on_train_start(trainer, module)
    assert fake_library.last.loaded == [b"ledger"]
