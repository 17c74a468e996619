"""A cost model computed from an accelerator's data sheet, and marked as analytical.

This is the roofline of a whole step (Williams, Waterman and Patterson, 2009). A step takes the
longer of two times: reading the weights once, or multiplying its tokens with them. KV reads are
added.
"""

from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway import __version__
from headway.core.cost.step_cost import Rates, StepCost
from headway.costing.calibration import Calibration
from headway.errors import MemoryPlanError, SettingError, did_you_mean
from headway.yaml_values import known, mapping, number, read_yaml

if TYPE_CHECKING:
    from headway.executor.torch.config.model_config import ModelConfig

SHIPPED = Path(str(files("headway"))) / "data" / "accelerators.yaml"
SHAPES = Path(str(files("headway"))) / "data" / "shapes.yaml"
KEYS = ("memory", "bandwidth", "products", "price")
DTYPE, ITEMSIZE = "bfloat16", 2  # of the FLOP/s that the sheets state
# Assumptions, not measurements: what well-tuned kernels are commonly said to reach. Measured cost
# files do not use them.
BANDWIDTH_REACHED = 0.8  # share of the sheet's that a decode step reaches; 0.6 to 0.85 is usual
PRODUCTS_REACHED = 0.45  # share of the dense FLOP/s that a long prompt reaches; usual: 0.4 to 0.6
HOST_NS = 1_000_000  # nanoseconds per step for the host to decide, build inputs and sample
SLOTS = 256  # of the running batch; sixteen would leave most of an accelerator idle
CONTEXT = 8_192  # tokens that a request may hold, unless the model's context is shorter
BLOCK_SIZE = 16
PS = 10**12  # picoseconds per second


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator's data sheet."""

    name: str
    memory: float  # gigabytes
    bandwidth: float  # gigabytes per second
    products: float  # teraFLOP per second, dense bfloat16
    price: float  # per hour


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What a model reads and computes, per step and per token."""

    weights: int  # bytes that a step reads, at most
    flops: int  # per token, in all layers' matrix products without the output layer
    pair: int  # FLOP per (query, key) pair
    kv: int  # bytes per token
    head: int  # FLOP for the logits of one position
    held: int  # bytes of all weights in memory: a step reads only rows of an embedding
    experts: int = 0  # of `weights`, the bytes of experts; 0: there are none
    chosen: float = 1.0  # share of the experts that a token chooses

    def read(self, tokens: int) -> float:
        """Bytes of weights that a step of these tokens reads, if each chooses its experts evenly
        and alone: an expert that no token chooses is not read."""
        return self.weights - self.experts * (1 - self.chosen) ** tokens


def read_accelerator(name: str, path: Path | None = None) -> Accelerator:
    """Read a data sheet from the shipped file or from `path`. SettingError suggests a name."""
    sheets = {str(key): sheet for key, sheet in read_yaml(path or SHIPPED).items()}  # such as 4090
    if name not in sheets:
        raise SettingError(f"no data sheet of an accelerator {name}{did_you_mean(name, sheets)}")
    where = f"{(path or SHIPPED).name}: {name}"
    fields = mapping(sheets[name], where)
    known(fields, KEYS, where)
    if missing := [key for key in KEYS[:3] if key not in fields]:
        raise SettingError(f"{where}: there is no {', '.join(missing)}")
    least = dict.fromkeys(KEYS[:3], 1e-3) | {"price": 0.0}
    return Accelerator(
        name,
        **{key: number(fields.get(key, 0), f"{where}: {key}", least[key]) for key in KEYS},
    )


def has_shape(model: str) -> bool:
    """Whether a shape of this name ships with the package."""
    return model in read_yaml(SHAPES)


def read_shape(model: str) -> "ModelConfig":
    """Read a shipped shape by its name, or the shape in a folder's config.json.

    SettingError suggests the nearest name.
    """
    from headway.executor.torch.config.model_config import parse_config, read_config

    tensor_shapes = read_yaml(SHAPES)
    if model in tensor_shapes:
        return parse_config(tensor_shapes[model], {}, f"{SHAPES.name}: {model}")
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise SettingError(
            f"{model} is neither a folder with a config.json nor a shape that ships"
            f"{did_you_mean(model, tensor_shapes)}"
        )
    return read_config(folder)


def analytical_calibration(
    config: "ModelConfig", sheet: Accelerator, model: str, slots: int = SLOTS, context: int = 0
) -> Calibration:
    """The analytical cost file of this model on this accelerator.

    context: tokens that a request may hold; 0: CONTEXT, or the model's if that is less.

    Raises MemoryPlanError if the weights leave no room for a request.
    """
    from headway.executor.torch.memory.memory_plan import (
        GATHER_BUDGET_ELSEWHERE,
        Limits,
        human_bytes,
        plan_memory,
    )

    work, held = model_work(config), min(context or CONTEXT, config.context)
    memory = int(sheet.memory * 1e9)
    if work.held >= memory:
        raise MemoryPlanError(
            f"{model} weighs {human_bytes(work.held)}, and {sheet.name} has "
            f"{human_bytes(memory)}: take a larger accelerator or a smaller model"
        )
    limits = Limits(slots, context=held, block_size=BLOCK_SIZE)
    room = memory - work.held
    plan = plan_memory(config, limits, ITEMSIZE, work.held, room, GATHER_BUDGET_ELSEWHERE)
    return Calibration(
        model=model,
        dtype=DTYPE,
        device=sheet.name,
        machine={"accelerator": sheet.name, **asdict(sheet)},
        analytical=True,
        cost=roofline(work, sheet),
        kv_bytes=work.kv,
        num_blocks=plan.num_blocks,
        fit=plan.fit,
        block_size=BLOCK_SIZE,
        context=held,
        slots=slots,
        price_per_hour=sheet.price,
        about=_about(),
    )


def roofline(work: ModelWork, sheet: Accelerator) -> StepCost:
    """The cost model of a step: the time to read the weights, plus the tokens above the knee.

    The output layer's weights are read only if the step computes logits. Tokens cost nothing until
    their products take longer than the read, except that more tokens choose more experts.
    """
    per_byte = PS / (sheet.bandwidth * 1e9 * BANDWIDTH_REACHED)
    per_flop = PS / (sheet.products * 1e12 * PRODUCTS_REACHED)
    step, token = work.weights * per_byte, work.flops * per_flop
    head = work.head // 2 * ITEMSIZE * per_byte  # two FLOP per weight
    knee = round(step / token)
    return StepCost(
        device=Rates(
            step=round(work.read(0) * per_byte - head),
            head=round(head),
            read=round(work.kv * per_byte),
            pair=round(work.pair * per_flop),
            logit=round(work.head * per_flop),
        ),
        pieces=(*_reading(work, knee, per_byte), (knee, round(token))),
        host=Rates(step=HOST_NS * 1_000),
        knee=knee,
    )


def _reading(work: ModelWork, knee: int, per_byte: float) -> list[tuple[int, int]]:
    """The token's price up to the knee, for the experts that it adds to those read. Piecewise, with
    knots at powers of two. per_byte: picoseconds."""
    knots = [0, *(1 << power for power in range(knee.bit_length())), knee]
    knots = sorted(set(knots)) if work.experts else [0, knee]
    return [
        (begin, round((work.read(end) - work.read(begin)) * per_byte / max(1, end - begin)))
        for begin, end in pairwise(knots)
    ]


def model_work(config: "ModelConfig") -> ModelWork:
    """The work of a model. With experts, a token computes only the chosen ones."""
    from headway.executor.torch.loading.tensor_names import tensor_shapes

    parameters = sum(map(prod, tensor_shapes(config).values()))
    tables = config.vocab * config.hidden * (1 if config.tied else 2)
    expert, chosen = 0, 1.0  # weights of all experts, and the share that a token chooses
    if (experts := config.experts) is not None:
        expert = config.layers * experts.count * 3 * config.hidden * config.intermediate
        chosen = experts.chosen / experts.count
    return ModelWork(
        # An embedding that is not also the output layer is read only one row per token.
        weights=(parameters - (0 if config.tied else tables // 2)) * ITEMSIZE,
        flops=2 * (parameters - tables - round(expert * (1 - chosen))),
        pair=4 * config.layers * config.heads * config.head_dim,
        kv=config.kv_elements * ITEMSIZE,
        head=2 * config.vocab * config.hidden,
        held=parameters * ITEMSIZE,
        experts=expert * ITEMSIZE,
        chosen=chosen,
    )


def _about() -> dict[str, Any]:
    return {
        "headway": __version__,
        "assumed": {
            "share_of_bandwidth": BANDWIDTH_REACHED,
            "share_of_products": PRODUCTS_REACHED,
            "host_ns_per_step": HOST_NS,
        },
        "not_in_it": "the spread of step times, several accelerators at once, quantised weights",
    }
