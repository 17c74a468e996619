"""A cost model worked out from data sheets, for a machine that is not here: marked as such.

The roofline of a whole step (Williams, Waterman and Patterson, 2009): its weights are read once,
its tokens are multiplied with them, whichever takes longer; the KV that it reads comes on top.
"""

from dataclasses import asdict, dataclass
from importlib.resources import files
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
DTYPE, ITEMSIZE = "bfloat16", 2  # what the sheets' products are in
# Assumptions, not measurements: what well-kept kernels are commonly said to reach. A measured cost
# file has none of them.
BANDWIDTH_REACHED = 0.8  # of the sheet's, by a decode step; 0.6 to 0.85 is usual
PRODUCTS_REACHED = 0.45  # of the sheet's dense ones, by a long prompt; 0.4 to 0.6 is usual
HOST_NS = 1_000_000  # nanoseconds of a step in which its host decides, builds inputs and samples
SLOTS = 256  # of an accelerator that is full; sixteen leave most of one idle
CONTEXT = 8_192  # tokens that a request may hold, where the model's is not shorter
BLOCK_SIZE = 16
PS = 10**12  # picoseconds of a second


@dataclass(frozen=True, slots=True)
class Accelerator:
    """As its data sheet has it."""

    name: str
    memory: float  # gigabytes
    bandwidth: float  # gigabytes per second
    products: float  # teraFLOP per second, dense bfloat16
    price: float  # per hour


@dataclass(frozen=True, slots=True)
class ModelWork:
    """Of one step, and of one token in it."""

    weights: int  # bytes
    flops: int  # of a token in all layers' products, the head apart
    pair: int  # FLOP of a (query, key) pair
    kv: int  # bytes of a token
    head: int  # FLOP of a position's logits


def read_accelerator(name: str, path: Path | None = None) -> Accelerator:
    """Of the file that ships, or of the user's own. SettingError names the nearest."""
    sheets = read_yaml(path or SHIPPED)
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
    """Whether the model's shape ships, under this name."""
    return model in read_yaml(SHAPES)


def read_shape(model: str) -> "ModelConfig":
    """Of a name that ships, or of a folder with a config.json. SettingError names the nearest."""
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
    """context: tokens that a request may hold; 0: CONTEXT, or the model's if that is less.

    Raises MemoryPlanError where the weights leave no room for a request.
    """
    from headway.executor.torch.memory.memory_plan import (
        GATHER_BUDGET_ELSEWHERE,
        Limits,
        human_bytes,
        plan_memory,
    )

    work, held = model_work(config), min(context or CONTEXT, config.context)
    memory = int(sheet.memory * 1e9)
    if work.weights >= memory:
        raise MemoryPlanError(
            f"{model} weighs {human_bytes(work.weights)}, and {sheet.name} has "
            f"{human_bytes(memory)}: take a larger accelerator or a smaller model"
        )
    limits = Limits(slots, context=held, block_size=BLOCK_SIZE)
    room = memory - work.weights
    plan = plan_memory(config, limits, ITEMSIZE, work.weights, room, GATHER_BUDGET_ELSEWHERE)
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
    """The weights' bytes are the step's, the head's where anything is sampled; tokens cost where
    their products take longer than all of them."""
    per_byte = PS / (sheet.bandwidth * 1e9 * BANDWIDTH_REACHED)
    per_flop = PS / (sheet.products * 1e12 * PRODUCTS_REACHED)
    step, token = work.weights * per_byte, work.flops * per_flop
    head = work.head // 2 * ITEMSIZE * per_byte  # two FLOP a weight
    knee = round(step / token)
    return StepCost(
        device=Rates(
            step=round(step - head),
            head=round(head),
            read=round(work.kv * per_byte),
            pair=round(work.pair * per_flop),
            logit=round(work.head * per_flop),
        ),
        pieces=((0, 0), (knee, round(token))),
        host=Rates(step=HOST_NS * 1_000),
        knee=knee,
    )


def model_work(config: "ModelConfig") -> ModelWork:
    """Where there are experts a token meets a few of them, and a step reads all."""
    from headway.executor.torch.loading.tensor_names import tensor_shapes

    parameters = sum(map(prod, tensor_shapes(config).values()))
    tables = config.vocab * config.hidden * (1 if config.tied else 2)
    idle = 0
    if (experts := config.experts) is not None:
        one = 3 * config.hidden * config.intermediate
        idle = config.layers * (experts.count - experts.chosen) * one
    return ModelWork(
        # of the embedding that is not the head too, a row per token is read
        weights=(parameters - (0 if config.tied else tables // 2)) * ITEMSIZE,
        flops=2 * (parameters - tables - idle),
        pair=4 * config.layers * config.heads * config.head_dim,
        kv=config.kv_elements * ITEMSIZE,
        head=2 * config.vocab * config.hidden,
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
