"""compiled: the C++ kernels (native/) as a shared library, built once for this machine.

A wheel holds only the source. The library is built at first use for this machine's processor, and
kept in the user's cache under a name derived from the source, the compiler and its flags, and the
processor.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headway.errors import HeadwayError
from headway.executor.torch.config.processor import cpu_flags
from headway.private_folder import private_folder

SOURCES = Path(__file__).with_name("native")
# OpenMP is not linked: its functions come from the runtime that torch has loaded. Two runtimes
# would have two sets of threads that compete for the cores.
# No implicit fused multiply-adds: int8.cpp must give the same bits as its reference.
FLAGS = (
    *("-O3", "-march=native", "-ffp-contract=off", "-std=c++17", "-fPIC", "-fopenmp"),
    *("-mprefer-vector-width=512", "-Wno-maybe-uninitialized"),
)
SWITCH = "HEADWAY_CPU_KERNELS"  # "off": torch's own operators alone
SECONDS = 120  # limit of each run of the compiler
WORK = "build-"  # begins the name of a build's temporary folder
DIGEST = 32  # bytes of the hash of a library, which are its last ones
NEEDED = {"avx2", "fma"}


class NoKernelsError(HeadwayError):
    """The library is not available here; the message says why."""


def can_be_built() -> bool:
    """Whether the kernels are not switched off and this machine can build them. Builds nothing."""
    fits = platform.machine() in ("x86_64", "AMD64") and cpu_flags() >= NEEDED
    return fits and not is_off() and shutil.which(os.environ.get("CXX", "g++")) is not None


def is_off() -> bool:
    """Whether the user has switched the kernels off."""
    return os.environ.get(SWITCH, "").lower() in ("off", "0", "no")


def compiled(say: Callable[[str], None] | None = None) -> Path:
    """The library's file, built if it is missing or damaged. Raises NoKernelsError.

    say: called with a message before a build, which takes seconds; None: print it to stderr. A
    lock ensures that only one process builds.
    """
    if platform.machine() not in ("x86_64", "AMD64") or not cpu_flags() >= NEEDED:
        raise NoKernelsError("the CPU kernels are for x86 processors with AVX2")
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise NoKernelsError("there is no C++ compiler (g++, or what CXX names)")
    try:
        folder = private_folder("kernels")
        file = folder / f"kernels-{_fingerprint(compiled_by=compiler)}.so"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_whole(file):
                (say or _say)("Building the CPU kernels for this machine, once ...")
                _build(compiler, file)
        return file
    except OSError as error:
        raise NoKernelsError(f"the CPU kernels' cache: {error}") from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _is_whole(file: Path) -> bool:
    """Whether the library is there and as it was built. Loading a part of one can end the process:
    after a power failure a file may be shorter than it was."""
    if not file.is_file():
        return False
    content = file.read_bytes()
    return _digest(content[:-DIGEST]) == content[-DIGEST:]


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _fingerprint(compiled_by: str) -> str:
    """A hash of the sources, the compiler's version, its flags and the processor's flags."""
    asked = [compiled_by, "--version"]
    version = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS).stdout
    texts = [path.read_text(encoding="utf-8") for path in _files("*")]
    parts = [*texts, version, *FLAGS, *sorted(cpu_flags())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _files(pattern: str) -> list[Path]:
    return sorted(path for path in SOURCES.glob(pattern) if path.is_file())


def _build(compiler: str, file: Path) -> None:
    """Build the library in a temporary folder and rename it when it is complete. As many sources
    are compiled at a time as there are processors. The caller holds the lock, so a folder of
    another build is one that a killed process has left, and is removed."""
    for left in file.parent.glob(f"{WORK}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=WORK, dir=file.parent) as work:
        library = Path(work, file.name)
        parts = {path: Path(work, f"{path.stem}.o") for path in _files("*.cpp")}
        asked = [
            [compiler, *FLAGS, "-c", str(path), "-o", str(part)] for path, part in parts.items()
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_compile, asked))  # raises the error of the first that failed
        _compile([compiler, "-shared", *map(str, parts.values()), "-o", str(library)])
        with library.open("ab") as end:  # loading ignores what follows a library
            end.write(_digest(library.read_bytes()))
        library.replace(file)


def _compile(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NoKernelsError(f"{command[0]} took more than {SECONDS} s") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise NoKernelsError(f"{command[0]} failed: {said[0]}")
