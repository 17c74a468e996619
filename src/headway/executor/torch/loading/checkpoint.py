"""Checkpoint: checks and reads the tensors of a folder (locate finds it, locally or on the hub).

Only safetensors are read. Pickles are never opened, because opening one can run any code.
"""

import errno
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from safetensors import SafetensorError, safe_open

from headway.errors import CheckpointError, first_line
from headway.executor.torch.config.config_reader import read_json
from headway.models import EMBEDDED, is_embedded

if TYPE_CHECKING:  # importing torch takes half a second, and reading headers does not need it
    from torch import Tensor

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
PATTERNS = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model"]  # what is fetched
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
FLOAT_DTYPES = ("F32", "BF16", "F16")
IGNORED = re.compile(r".*\.rotary_emb\.inv_freq")  # a buffer that old Llama files contain
BASE = "model."  # prefix of all tensors' names but the head's


def locate(source: str | Path, wanted: Sequence[str] = PATTERNS) -> Path:
    """Find a checkpoint's folder from its path or its hub id, such as Qwen/Qwen2.5-0.5B.

    An id is looked up in the local hub cache. Files that are missing there are fetched, unless
    HF_HUB_OFFLINE forbids it. wanted: name patterns of the files. Raises CheckpointError if there
    is neither such a folder nor such an id.
    """
    if (folder := local_folder(source)) is not None:
        return folder
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise CheckpointError(
            f"{source} is not a folder; to fetch it by id, install huggingface_hub"
        ) from None
    # The hub's own errors are OSErrors and ValueErrors. Its HTTP client's are neither.
    network: type[Exception] = getattr(errors, "HTTPError", OSError)
    try:
        return Path(snapshot_download(str(source), allow_patterns=list(wanted)))
    except (OSError, ValueError, network) as error:
        raise CheckpointError(
            f"{source} is not a folder here and cannot be fetched from the hub: "
            f"{first_line(error).removeprefix('Got: ')}"
        ) from None


def local_folder(source: str | Path) -> Path | None:
    """The checkpoint's folder, also by the embedded model's name; None for a hub id. Raises
    CheckpointError if the source is neither, or if this user may not enter the folder."""
    folder = EMBEDDED if is_embedded(source) else Path(source).expanduser()
    try:
        is_folder, is_there = folder.is_dir(), folder.exists()
    except OSError as error:  # such as a folder above it that this user may not enter
        raise CheckpointError(f"the model {source} cannot be read: {error.strerror}") from None
    if is_folder and not os.access(folder, os.R_OK | os.X_OK):
        raise CheckpointError(f"the model {source} cannot be read: {os.strerror(errno.EACCES)}")
    if is_folder:
        return folder
    if is_there or not HUB_ID.fullmatch(str(source)) or isinstance(source, Path):
        raise CheckpointError(f"the model {source} is not a folder, nor a model's id on the hub")
    return None


class Checkpoint:
    """The tensors of one folder by name. It holds files open, so it is a context manager.

    A model that was saved without its head has names without "model."; they are found too.
    """

    def __init__(
        self,
        folder: Path,
        shapes: Mapping[str, tuple[int, ...]],
        framework: Literal["pt", "np"] = "pt",
    ) -> None:
        """Open the files and compare names and shapes with `shapes`, which the config requires.

        Only headers are read. framework: "np" avoids importing torch, if no tensor will be read.
        Raises CheckpointError, naming the file and the tensor.
        """
        self.folder, self._framework = folder, framework
        self._files: dict[str, Any] = {}  # file name -> its open handle
        self._file_of: dict[str, str] = {}  # tensor, as it is stored -> file name
        try:
            self._open()
            self._is_bare = not any(name.startswith(BASE) for name in self._file_of)
            self._compare(shapes)
        except CheckpointError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __contains__(self, name: str) -> bool:
        return self._stored(name) in self._file_of

    def close(self) -> None:
        """Close the files. Closing twice does nothing."""
        for handle in self._files.values():
            handle.__exit__(None, None, None)
        self._files.clear()

    def read(self, name: str) -> "Tensor":
        """Read one tensor as it is stored, to the CPU. Raises CheckpointError."""
        stored = self._stored(name)
        file = self._file_of[stored]
        try:
            tensor: Tensor = self._files[file].get_tensor(stored)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise CheckpointError(
                f"{self.folder / file}: tensor {name} cannot be read: {first_line(error)}"
            ) from None
        return tensor

    def read_finite(self, name: str) -> "Tensor":
        """As `read`. Raises CheckpointError for NaN and infinity, too."""
        tensor = self.read(name)
        if not all(each.isfinite() for each in tensor.aminmax()):  # a NaN is both
            file = self.folder / self._file_of[self._stored(name)]
            raise CheckpointError(f"{file}: {name} has numbers that are not finite")
        return tensor

    def _stored(self, name: str) -> str:
        return name.removeprefix(BASE) if self._is_bare else name

    def _open(self) -> None:
        claimed = self._index()
        for file in sorted(set(claimed.values())) if claimed else [SINGLE]:
            path = self.folder / file
            if not path.is_file():
                raise CheckpointError(f"{path} is missing: the download may be incomplete")
            if not os.access(path, os.R_OK):
                raise CheckpointError(f"{path} cannot be read: {os.strerror(errno.EACCES)}")
            try:
                handle: Any = safe_open(path, framework=self._framework, device="cpu")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(
                    f"{path} is damaged or cut short: {first_line(error)}"
                ) from None
            self._files[file] = handle.__enter__()
            for name in handle.keys():  # noqa: SIM118  (not a dict: it cannot be iterated)
                if not claimed or claimed.get(name) == file:
                    self._file_of[name] = file
        for name, file in claimed.items():
            if name not in self._file_of:
                raise CheckpointError(f"{self.folder / file} lacks {name}, which the index names")

    def _index(self) -> dict[str, str]:
        """Tensor -> file for a sharded checkpoint; empty for a single file."""
        if (self.folder / SINGLE).is_file():
            return {}
        path = self.folder / INDEX
        if not path.is_file():
            pickles = sorted(each.name for each in self.folder.glob("*.bin"))
            why = f"; {pickles[0]} is a pickle and is never opened" if pickles else ""
            raise CheckpointError(f"{self.folder} has no {SINGLE} and no {INDEX}{why}")
        claimed = read_json(path).get("weight_map")
        if not isinstance(claimed, dict) or not claimed:
            raise CheckpointError(f"{path} has no weight_map")
        for name, file in claimed.items():
            if not isinstance(file, str) or Path(file).name != file:
                raise CheckpointError(f"{path}: {name} points outside the folder, to {file!r}")
        return claimed

    def _compare(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        for wanted, shape in shapes.items():
            if (name := self._stored(wanted)) not in self._file_of:
                raise CheckpointError(f"{self.folder} lacks the tensor {name}")
            file = self._file_of[name]
            piece = self._files[file].get_slice(name)
            if (found := tuple(piece.get_shape())) != shape:
                raise CheckpointError(
                    f"{self.folder / file}: {name} is {list(found)}, config.json says {list(shape)}"
                )
            if (dtype := piece.get_dtype()) not in FLOAT_DTYPES:
                raise CheckpointError(f"{self.folder / file}: {name} is stored as {dtype}")
        # A tied head may be stored too (load_weights compares it), and so may an unused one.
        known = {*map(self._stored, shapes), "lm_head.weight"}
        for name, file in self._file_of.items():
            if name not in known and not IGNORED.fullmatch(name):
                raise CheckpointError(f"{self.folder / file}: unexpected tensor {name}")
