"""KV per token from a model's shape, checked against the executor's memory plan."""

from dataclasses import replace

from headway.commands.plan.estimate.checked_estimate import CheckedEstimate
from headway.commands.plan.estimate.memory import kv_estimate, kv_per_token
from headway.costing.calibration import Calibration
from headway.costing.datasheet import has_shape, read_shape
from headway.errors import HeadwayError, SettingError
from headway.executor.precision import ITEMSIZES, read_precision
from headway.models import EMBEDDED, display_name


def kv_or_why_not(model: str | None, calibration: Calibration) -> tuple[list[CheckedEstimate], str]:
    """The KV per token in bytes, or the reason why it is unknown.

    model: None for the cost file's model, whose errors become the reason. A named model's errors
    are raised: SettingError if the cost file is for another model, CheckpointError if it is broken.
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
    """KV per token in bytes, for the model and for its shape with other numbers of KV heads.

    model: a checkpoint's folder or hub id, or a shipped shape; None: the embedded model.
    Raises SettingError if a package is missing or the dtype is unknown, CheckpointError for a
    broken model.
    """
    try:
        from headway.executor.torch.config.model_config import read_config
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
    precision = read_precision(calibration.dtype)
    if precision.dtype not in ITEMSIZES:
        raise SettingError(
            f"headway does not compute in {calibration.dtype}, the dtype of this cost file"
        )
    itemsize = precision.itemsize
    kinds = kv_per_token(config.layers, config.heads, config.kv_heads, config.head_dim, itemsize)
    answers = []
    for kind, value in kinds.items():
        heads = {"MHA": config.heads, "MQA": 1}.get(kind, config.kv_heads)
        shaped, limits = replace(config, kv_heads=heads), Limits(num_blocks=1)
        plan = plan_memory(shaped, limits, itemsize, 0, 1 << 60, gather_budget("cpu"))
        is_own = heads == config.kv_heads
        answers.append(
            CheckedEstimate(
                kv_estimate(kind, value, is_own),
                calibration.kv_bytes if is_own else plan.per_block / plan.block_size,
                "the engine that the cost file was measured on"
                if is_own
                else "the executor's plan",
            )
        )
    return answers
