"""tokenizer_beside: a folder's tokenizer is read while its weights are."""

import importlib
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Thread
from typing import Any

from headway.executor.encoder.families import is_encoder
from headway.executor.load import TORCH
from headway.tokenizer import read_tokenizer


class Reading:
    """A folder's tokenizer, read in a thread while its caller reads weights: importing transformers
    takes a second. A context manager: the thread has ended when the block is left, so that nobody
    else imports transformers at the same time, which fails."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found: Future[Any] = Future()
        self._thread = Thread(target=self._run, name="headway-tokenizer", daemon=True)

    def __enter__(self) -> "Reading":
        # Both need torch, whose import parses Python. CPython 3.11 cannot in two threads at once
        # (python/cpython 106905): it raised SystemError once in thousands of starts.
        importlib.import_module("torch")
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._found.set_result(read_tokenizer(self.folder))
        except BaseException as error:
            self._found.set_exception(error)

    def of(self, folder: Path) -> Any:
        """What was read, for Tokenizer; None for another folder. Raises TokenizerError."""
        return self._found.result() if folder == self.folder else None


def tokenizer_beside(executor: str, source: str | Path) -> AbstractContextManager[Reading | None]:
    """Reads a folder's tokenizer in a thread, until the block is left in which `load` reads the
    weights. None for a model on the hub, and for what imports transformers itself."""
    folder = Path(source).expanduser()
    if executor != TORCH or not (folder / "config.json").is_file() or is_encoder(folder):
        return nullcontext()
    return Reading(folder)
