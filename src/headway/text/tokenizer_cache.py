"""read_tokenizer: a folder's tokenizer, read by transformers once and then from the user's cache.

Importing transformers and reading a tokenizer with it takes about two seconds, and its Python code
holds up the threads that load the weights. Only tokenizers is needed to read what is kept.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

from headway.private_folder import private_folder
from headway.text.loaded_tokenizer import LoadedTokenizer, load_tokenizer

FOLDER = "tokenizers"
WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}
LARGEST = 64 << 20  # bytes of a file that is not weights; with a larger one nothing is kept
MOST = 16  # tokenizers kept; the least recently used is deleted
SOURCES = Path(__file__).parent


def read_tokenizer(folder: Path) -> LoadedTokenizer:
    """Read a folder's tokenizer, from the cache if nothing that it depends on has changed.

    A cache that cannot be read or written costs only the time. Raises TokenizerError.
    """
    file = _file(folder)
    with suppress(OSError):
        if file and (kept := _read(file)):
            return kept
    loaded = load_tokenizer(folder)
    with suppress(OSError, TypeError):  # TypeError: a special token that JSON cannot express
        if file and file == _file(folder):  # no file was written meanwhile
            _keep(file, loaded)
    return loaded


def _file(folder: Path) -> Path | None:
    """Where the folder's tokenizer is kept; None: it cannot be."""
    with suppress(OSError):
        return private_folder(FOLDER) / _key(folder)
    return None


def _key(folder: Path) -> str:
    """A hash of all files of the folder but the weights, of the libraries' versions, and of this
    package's code. Raises OSError."""
    made = hashlib.sha256()
    for name in ("transformers", "tokenizers"):
        made.update(f"{name} {version(name)}\n".encode())
    own = [(path.name, path) for path in sorted(SOURCES.glob("*.py"))]
    for name, path in (*own, *[(str(each.relative_to(folder)), each) for each in _files(folder)]):
        content = path.read_bytes()
        made.update(f"{name} {len(content)}\n".encode())
        made.update(content)
    return made.hexdigest()[:40]


def _files(folder: Path) -> Iterator[Path]:
    """The files that a tokenizer may be read from: transformers decides which."""
    inner = folder / "additional_chat_templates"
    for path in sorted([*folder.iterdir(), *inner.glob("*")]):
        if path.suffix not in WEIGHTS and path.is_file():
            if path.stat().st_size > LARGEST:
                raise OSError(f"{path} is too large to be hashed at every start")
            yield path


def _read(file: Path) -> LoadedTokenizer | None:
    """What was kept in a file; None: nothing, or it is damaged. Raises OSError."""
    import tokenizers

    if not file.is_file():
        return None
    digest, _, content = file.read_bytes().partition(b"\n")
    if digest != _digest(content):
        return None
    os.utime(file)  # it is the most recently used now
    head, _, fast = content.partition(b"\n")
    return LoadedTokenizer(fast=tokenizers.Tokenizer.from_buffer(fast), **json.loads(head))


def _keep(file: Path, loaded: LoadedTokenizer) -> None:
    """Write a tokenizer into a file, complete or not at all. Raises OSError or TypeError."""
    names = ("template", "named", "largest", "longest")
    head = json.dumps({name: getattr(loaded, name) for name in names})
    content = f"{head}\n{loaded.fast.to_str()}".encode()
    with NamedTemporaryFile(dir=file.parent, delete=False) as made:
        try:
            made.write(_digest(content) + b"\n" + content)
            made.flush()
            os.replace(made.name, file)
        except BaseException:
            os.unlink(made.name)
            raise
    used = sorted(file.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in used[:-MOST]:
        path.unlink(missing_ok=True)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
