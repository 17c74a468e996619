"""KV per token from a model's shape, beside what the executor would plan."""

from dataclasses import replace

from headway.commands.plan.estimate.checked_estimate import CheckedEstimate
from headway.commands.plan.estimate.memory import kv_estimate, kv_per_token
from headway.costing.calibration import Calibration
from headway.costing.datasheet import has_shape, read_shape
from headway.errors import HeadwayError, SettingError
from headway.models import EMBEDDED, display_name


def kv_or_why_not(model: str | None, calibration: Calibration) -> tuple[list[CheckedEstimate], str]:
    """The answers, or why there are none. None: the cost file's own model, if it is here.

    Of a model that is named all errors are raised: SettingError if the cost file is of another.
    """
    if model is not None:
        calibration.check_model(display_name(model))
        return kv_answers(model, calibration), ""
    own = calibration.model
    if own != display_name(None) and not has_shape(own):
        why = f"the shape of {own} is not known here: say --model with its folder or hub id"
        return [], f"KV per token is left out; {why}"
    try:
        return kv_answers(own if has_shape(own) else None, calibration), ""
    except HeadwayError as error:
        return [], f"KV per token is left out; {error}"


def kv_answers(model: str | None, calibration: Calibration) -> list[CheckedEstimate]:
    """The model as it is, and as it would be with other numbers of KV heads.

    model: a checkpoint's folder or hub id, or a shape that ships; None: the embedded one.
    """
    try:
        from headway.executor.torch.config.model_config import ITEMSIZES, read_config
        from headway.executor.torch.loading.checkpoint import locate
        from headway.executor.torch.memory.memory_plan import Limits, gather_budget, plan_memory
    except ModuleNotFoundError as error:
        raise SettingError(
            f"looking into a checkpoint needs {error.name}: pip install 'headway[torch]'"
        ) from error

    if model is not None and has_shape(model):
        config = read_shape(model)
    else:
        config = read_config(locate(model or EMBEDDED, ("*.json",)))
    if calibration.dtype not in ITEMSIZES:
        raise SettingError(
            f"this cost file's dtype {calibration.dtype} is not one that is computed"
        )
    itemsize = ITEMSIZES[calibration.dtype]
    kinds = kv_per_token(config.layers, config.heads, config.kv_heads, config.head_dim, itemsize)
    answers = []
    for kind, value in kinds.items():
        heads = {"MHA": config.heads, "MQA": 1}.get(kind, config.kv_heads)
        shaped, limits = replace(config, kv_heads=heads), Limits(num_blocks=1)
        made = plan_memory(shaped, limits, itemsize, 0, 1 << 60, gather_budget("cpu"))
        is_own = heads == config.kv_heads
        answers.append(
            CheckedEstimate(
                kv_estimate(kind, value, is_own),
                calibration.kv_bytes if is_own else made.per_block / made.block_size,
                "what the engine had that the cost file is of" if is_own else "the executor's plan",
            )
        )
    return answers
