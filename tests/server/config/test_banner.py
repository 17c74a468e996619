"""The banner that is printed when the server is ready."""

from dataclasses import replace

from headway.core.load import Load
from headway.executor.torch.memory.memory_plan import MemoryPlan
from headway.server.banner import banner
from headway.server.config.config import ServerConfig
from headway.server.engine.messages import Welcome

GIB = 1 << 30
PLAN = MemoryPlan(70 * GIB, 123 * GIB, 14 * GIB, 1 << 20, 16, 130_000, 999_999, 130_000, 131_072)


def shown(plan):
    sizes = 512, plan.num_blocks, 16, 512
    rest = frozenset[int](), plan.summary, Load()
    welcome = Welcome("org/model", "folder", None, "bfloat16", "cuda:0", *sizes, *rest)
    return banner(ServerConfig(), [welcome], 65_535)


def test_lines_fit_a_terminal_and_lanes_are_in_columns():
    lines = shown(PLAN).splitlines()
    assert max(map(len, lines)) < 80
    assert "  on http://127.0.0.1:65535/v1" in lines
    head, *lanes = lines[2:6]
    assert [line.split()[0] for line in lanes] == ["interactive", "standard", "offline"]
    assert lanes[1].endswith("(default)")
    assert all(line[: head.index("ttft")].strip() == line.split()[0] for line in lanes)


def test_the_banner_says_what_bounds_the_memory():
    assert "all that the slots can use; the memory has room for 999999" in shown(PLAN)
    tight = replace(PLAN, num_blocks=90_000, fit=90_000)
    assert "all that the memory has room for; the slots could use 130000" in shown(tight)


def test_the_banner_counts_models_and_functions_apart():
    two = [{"name": "one"}, {"name": "other"}]
    functions = [{"function": "json:loads"}, {"function": "json:dumps"}]
    for models, head in (
        (two, "serves 2 models\n"),
        ([*two, functions[0]], "serves 2 models and 1 function\n"),
        (functions, "serves 2 functions\n"),
    ):
        config = ServerConfig(models=models)
        sizes = 512, PLAN.num_blocks, 16, 512, frozenset[int](), PLAN.summary, Load()
        welcome = Welcome("org/model", "folder", None, "float32", "cpu", *sizes)
        assert head in banner(config, [welcome] * len(config.engines), 8_000)
