"""Files that a command writes: never its own input, and whole or not at all."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os.path import realpath
from pathlib import Path
from secrets import token_hex

from headway.errors import SettingError

# What these name is open already. It cannot be replaced, even where it leads to a file.
OPEN = (Path("/dev/stdout"), Path("/dev/stderr"), Path("/dev/fd"), Path("/proc/self/fd"))


def is_stream(path: Path) -> bool:
    """Whether the path is a device, a pipe or an open descriptor, such as /dev/stdout."""
    here = path.absolute()
    return (path.exists() and not path.is_file()) or any(map(here.is_relative_to, OPEN))


def check_not_input(path: Path, option: str, inputs: Iterable[Path]) -> None:
    """Raise SettingError if the output that `option` names is one of these inputs, by whatever
    name or link."""
    for each in inputs:
        same_file = path.exists() and each.exists() and path.samefile(each)
        if same_file or realpath(path) == realpath(each):
            raise SettingError(f"{option} {path} would replace the input {each}: name another file")


def check_replaceable(path: Path, option: str, beginnings: Iterable[bytes], kind: str) -> None:
    """Raise SettingError if a file is there that begins otherwise: it is the user's. Nothing is
    lost of an empty one."""
    if is_stream(path) or not path.exists():
        return
    try:
        with path.open("rb") as file:
            begin = file.read(64)
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}") from error
    if begin and not any(map(begin.startswith, beginnings)):
        raise SettingError(f"{path} is there already, and not {kind}: name another {option}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what `path` shall hold: a file beside it, which takes its place at the end. A
    symbolic link stays, and its target is replaced. A stream is written itself. Raises OSError."""
    if is_stream(path):
        yield path
        return
    target = Path(realpath(path))
    beside = target.with_name(f".headway-{token_hex(8)}.part")
    try:
        yield beside
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
