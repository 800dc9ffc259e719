"""Callbacks for training frameworks. Each module imports only its own framework, and only where it is there.

    huggingface.GyrostatCallback     transformers.Trainer(callbacks=[...])
    lightning.GyrostatCallback       lightning.Trainer(callbacks=[...])

Keyword arguments go to gyrostat.watch.
"""
