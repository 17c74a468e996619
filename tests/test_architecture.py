"""Imports run downward, the core is pure standard library, and files stay small."""

import ast
import graphlib
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import headway

SOURCE = Path(headway.__file__).parent
FILES = [path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py"))]
FLOORS = {
    "errors": 1,
    "core": 1,
    "models": 1,
    "printable": 1,
    "private_folder": 1,
    "journal": 2,
    "engine": 2,
    "text": 2,
    "yaml_values": 2,
    "executor": 2,
    "vectors": 2,
    "store": 2,
    "live": 3,
    "llm": 3,
    "batching": 3,
    "pipelines": 3,
    "sim": 3,
    "costing": 3,
    "routing": 4,
    "traffic": 5,
    "strategies": 5,
    "runs": 6,
    "figures": 7,
    "rollout": 7,
    "report": 8,
    "commands": 9,
    "server": 9,
    "cli": 10,
    "__main__": 11,
}
# Within executor/torch/ a file imports only from its own folder and from lower ones.
TORCH_ROOMS = {
    "config": 1,
    "cpu": 2,
    "memory": 2,
    "sampling": 3,
    "layers": 3,
    "attention": 4,
    "fused": 4,
    "loading": 5,
    "": 6,
}
SERVER_FLOORS = (  # lowest first: each imports only from itself and from those before it
    "clock",
    "heap",
    "store_thread",
    "store_clock",
    "protocol",
    "config",
    "engine",
    "answering",
    "intake",
    "observe",
    "http",
    "ledger",
    "dashboard",
    "jobs",
    "versions",
    "reload",
    "listening",
    "app",
    "banner",
    "functions",
    "backends",
    "run",
)
CORE_MAY = {"bisect", "collections", "dataclasses", "enum", "hashlib", "heapq", "itertools"}
CORE_MAY |= {"math", "operator", "struct", "typing"}


@cache
def nodes(path):
    """The parts of a file's syntax: read when a test needs them, not by a worker that has none."""
    return tuple(ast.walk(ast.parse((SOURCE / path).read_text())))


@cache
def imports(path):
    """The modules that a file imports, in order."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, "imports are absolute"
            if node.module in PACKAGES:
                found += [f"{node.module}.{each.name}" for each in node.names]
            else:
                found.append(node.module)
    return tuple(found)


def module(path):
    return ".".join(("headway", *path.with_suffix("").parts)).removesuffix(".__init__")


PACKAGES = {module(path) for path in FILES if path.name == "__init__.py"}


def floor_of(name):
    return FLOORS.get(name.split(".")[1], 0)


def ours(path):
    return {name for name in imports(path) if name.startswith("headway.")}


def test_every_part_has_a_floor():
    parts = {path.with_suffix("").parts[0] for path in FILES if path.parts[0] != "__init__.py"}
    assert parts == set(FLOORS)


def test_imports_run_downward():
    for path in FILES:
        if path.parts[0] != "__init__.py":  # the package's __init__ names higher parts, lazily
            for name in ours(path):
                assert floor_of(name) <= floor_of(module(path)), f"{path} imports {name}"


def torch_room(name):
    """The folder of executor/torch/ that a module is in; "": in none of them, None: elsewhere."""
    if not name.startswith("headway.executor.torch."):
        return None
    room = name.split(".")[3]
    return room if room in TORCH_ROOMS else ""


def test_the_folders_of_executor_torch_import_downward():
    folders = {path.parts[2] for path in FILES if path.match("executor/torch/*/*.py")}
    assert folders == set(TORCH_ROOMS) - {""}
    for path in FILES:
        room = torch_room(module(path))
        for name in ours(path) if room is not None else ():
            other = torch_room(name)
            if other not in (room, None):
                assert TORCH_ROOMS[other] < TORCH_ROOMS[room], f"{path} imports {name}"


def server_floor(name):
    """The floor of a module of the server; -1 for modules below the server."""
    parts = name.split(".")
    return SERVER_FLOORS.index(parts[2]) if parts[1] == "server" and len(parts) > 2 else -1


def test_the_servers_folders_import_in_order():
    files = [path for path in FILES if path.parts[0] == "server"]
    rooms = {path.with_suffix("").parts[1] for path in files} - {"__init__"}
    assert rooms == set(SERVER_FLOORS)
    for path in files:
        for name in ours(path):
            assert server_floor(name) <= server_floor(module(path)), f"{path} imports {name}"


def reached(name):
    """A module and all of headway's modules that it imports, directly or indirectly."""
    graph = {module(path): ours(path) for path in FILES}
    found, left = set(), [name]
    while left:
        if (each := left.pop()) not in found:
            found.add(each)
            left += graph.get(each, ())
    return found


def test_the_engine_process_imports_neither_commands_nor_the_front():
    found = reached("headway.server.engine.engine_process")
    parts = {name.split(".")[1] for name in found} & set(FLOORS)
    assert {part for part in parts if FLOORS[part] >= FLOORS["traffic"]} == {"server"}
    rooms = {name.split(".")[2] for name in found if name.startswith("headway.server.")}
    assert rooms == {"engine", "heap"}


def test_no_two_files_import_each_other():
    graph = {module(path): ours(path) for path in FILES if path.parts[0] != "__init__.py"}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) >= len(graph)


def test_the_core_imports_only_itself_and_a_few_standard_modules():
    for path in FILES:
        if path.parts[0] == "core":
            names = set(imports(path))
            outside = {n for n in names if not n.startswith(("headway.core.", "headway.errors"))}
            assert {name.split(".")[0] for name in outside} <= CORE_MAY, path


@pytest.mark.parametrize(
    "name, beyond",
    [
        ("headway.core.scheduler", {"asyncio", "logging", "random", "threading", "time"}),
        ("headway.sim.simulate", {"asyncio", "logging", "threading"}),
        ("headway.cli", set()),
        ("headway.server.engine.engine_process", {"fastapi", "pydantic", "structlog", "uvicorn"}),
    ],
)
def test_importing_loads_neither_torch_nor_anything_not_needed(name, beyond):
    """In a fresh interpreter, without site-packages where the core is concerned."""
    heavy = {"torch", "numpy", "transformers", "tokenizers"} | beyond
    code = f"import sys; before = set(sys.modules); import {name};"
    code += f"print(*sorted({heavy!r} & (set(sys.modules) - before)))"
    bare = ["-S"] if name.startswith("headway.core") else []
    done = subprocess.run(
        [sys.executable, *bare, "-Bc", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE.parent)},
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_the_server_needs_no_package_of_its_extras():
    """Stores, routes to other servers and DuckDB are extras: what needs them is imported late."""
    code = """
import sys
for name in ("sqlalchemy", "alembic", "httpx2", "duckdb", "python_multipart", "jsonschema"):
    sys.modules[name] = None
import headway.routing, headway.pipelines, headway.server.run, headway.server.functions.run
import headway.cli.app, headway.cli.operate.ledger, headway.cli.operate.versions
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_functions_are_served_without_the_libraries_of_models():
    code = """
import sys
for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy", "huggingface_hub"):
    sys.modules[name] = None
import headway.server.functions.run, headway.server.config.show, headway.cli.serve
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def readers(*names):
    return {str(path) for path in FILES if set(names) & set(imports(path))}


def test_only_clocks_runners_and_kernels_read_the_time():
    runners = {"executor/torch/runner.py", "executor/vllm/runner.py"}  # the cost of their inputs
    kernels = {"executor/torch/cpu/kept_choice.py"}  # which kernel is the fastest
    kernels |= {"executor/torch/cpu/huge_pages.py"}  # how long its thread rests
    assert readers("time") == {"live/clock.py", "server/clock.py"} | runners | kernels
    assert readers("datetime") <= {"traffic/trace.py"}, "it reads dates in files"


def test_tensors_stay_in_the_executor():
    assert all(path.startswith("executor/") for path in readers("torch"))
    beyond = {path for path in readers("numpy") if not path.startswith("executor/")}
    # fit.py needs scipy, and fits thousands of steps forty times. The others pass on arrays.
    passing = {"llm/vector_calls.py", "server/functions/codecs.py"}
    assert beyond == {"commands/calibrate/fit.py"} | passing


def test_the_package_exports_its_public_names():
    assert set(headway.__all__) <= set(dir(headway)), "completion finds them"
    assert [name for name in headway.__all__ if getattr(headway, name).__name__ == name]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = headway.nothing


def test_folders_stay_small():
    counts = Counter(str(path.parent) for path in FILES)
    assert {name for name, count in counts.items() if count > 15} == set()


def test_no_two_test_files_have_the_same_name():
    """Folders of tests are no packages, so pytest imports a file by its name alone."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_files_and_functions_stay_small():
    for path in FILES:
        lines = len((SOURCE / path).read_text().splitlines())
        assert lines <= 300, path
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # A command's options are a list for its help, declared where they are read.
                begin = node.body[0].lineno if path.parts[0] == "cli" else node.lineno
                assert node.end_lineno - begin <= 50, f"{path}: {node.name}"
        assert path.stem not in {"utils", "common", "base", "manager", "helpers", "types"}
