"""tokenizer_beside: read a folder's tokenizer while its weights are loaded."""

import importlib
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Thread

from headway.executor.encoder.families import is_encoder
from headway.executor.load import TORCH
from headway.text.loaded_tokenizer import LoadedTokenizer
from headway.text.tokenizer_cache import read_tokenizer


class Reading:
    """A folder's tokenizer, read in a thread while the caller loads weights. The first time, this
    takes two seconds, as transformers is imported. A context manager: leaving the block waits for
    the thread, because two imports of transformers at the same time fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found: Future[LoadedTokenizer] = Future()
        self._thread = Thread(target=self._run, name="headway-tokenizer", daemon=True)

    def __enter__(self) -> "Reading":
        # Both threads need torch, whose import parses Python. CPython 3.11 cannot parse in two
        # threads at once (python/cpython 106905): about one start in thousands raised SystemError.
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

    def of(self, folder: Path) -> LoadedTokenizer | None:
        """What Tokenizer takes as `read`; None for another folder. Raises TokenizerError."""
        return self._found.result() if folder == self.folder else None


def tokenizer_beside(executor: str, source: str | Path) -> AbstractContextManager[Reading | None]:
    """Read a folder's tokenizer in a thread while `load` loads the weights inside the block. None
    for a model on the hub, and for a model whose loading imports transformers."""
    folder = Path(source).expanduser()
    if executor != TORCH or not (folder / "config.json").is_file() or is_encoder(folder):
        return nullcontext()
    return Reading(folder)
