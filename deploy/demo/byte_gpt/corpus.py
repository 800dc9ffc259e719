"""Real text that every Debian machine has: the common licences, and this repository's own files.

Deterministic for one state of the repository: files in sorted order, bytes as they are.
"""

import pathlib

import torch

_LICENSES = pathlib.Path("/usr/share/common-licenses")
_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_SUFFIXES = (".cc", ".h", ".md", ".proto", ".py", ".txt", ".yaml")
_ROOMS = ("client", "daemon", "deploy", "proto", "tests")  # Never build/ or hidden folders.


def _files():
    if _LICENSES.is_dir():
        # GPL is a link to GPL-3: each text once.
        yield from (p for p in sorted(_LICENSES.iterdir()) if p.is_file() and not p.is_symlink())
    for room in _ROOMS:
        for path in sorted((_REPOSITORY / room).rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
                yield path


def load():
    """All text as one uint8 tensor. Raises FileNotFoundError when there is less of it than a training run needs."""
    data = b"\n".join(path.read_bytes() for path in _files())
    if len(data) < 100_000:
        raise FileNotFoundError(f"found {len(data)} bytes of text in {_LICENSES} and {_REPOSITORY}, wanted 100000")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


class Batches:
    """Endless random windows of the text: every batch is fresh, so the training loss is a validation loss too."""

    def __init__(self, text, batch, context, seed):
        self._text = text
        self._batch = batch
        self._offsets = torch.arange(context + 1)
        self._generator = torch.Generator().manual_seed(seed)

    def next(self):
        """(inputs, targets), int64 [batch, context] each; targets are the inputs one byte later."""
        last = len(self._text) - len(self._offsets)
        starts = torch.randint(0, last + 1, (self._batch, 1), generator=self._generator)
        window = self._text[starts + self._offsets].long()
        return window[:, :-1], window[:, 1:]
