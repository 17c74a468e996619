"""A testbed that runs a loaded model on the wall clock."""

import gc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.errors import SettingError
from headway.executor.load import BLOCK_SIZES, TORCH, check_executor
from headway.models import EMBEDDED, display_name
from headway.runs.corpus import read_corpus, split_text
from headway.runs.shared_executor import SharedExecutor
from headway.runs.testbed import BLOCK_SIZE, CONTEXT, Testbed
from headway.strategies.strategy import SLOTS

if TYPE_CHECKING:
    from headway.executor.loaded import Loaded
    from headway.executor.torch.load import LoadedModel


def load_testbed(
    model: str | None, executor: str = TORCH, options: Mapping[str, Any] = {}, dtype: str = ""
) -> Testbed:
    """Load a checkpoint to compare strategies on. options: vLLM's. Raises as load_with does."""
    loaded = load_with(executor, model, SLOTS, dtype, options)
    try:
        return make_corpus_testbed(loaded, model)
    except BaseException:
        loaded.executor.close()
        raise


def load_with(
    executor: str,
    model: str | None,
    slots: int,
    dtype: str = "",
    options: Mapping[str, Any] = {},
) -> "Loaded":
    """Load a model with an executor. model: as load_model takes it. options: for the executor vllm.

    Raises what loading raises, and what check_executor raises.
    """
    check_executor(executor, options, dtype=dtype)
    if executor == TORCH:
        return load_model(model, slots, dtype)
    from headway.executor.torch.memory.memory_plan import Limits
    from headway.executor.vllm.load import load

    limits = Limits(slots, slots * CONTEXT, 0, BLOCK_SIZES[executor])
    return load(model or EMBEDDED, limits, dtype, options=options, most_context=CONTEXT)


def load_model(model: str | None, slots: int, dtype: str = "", device: str = "") -> "LoadedModel":
    """Load a model with the torch executor. model: a checkpoint's folder or hub id; None: the
    embedded one. Raises what loading raises, and SettingError if torch is not installed."""
    # torch is an extra, and slow to import: import it only to run a model.
    try:
        from headway.executor.torch.config.model_config import read_config
        from headway.executor.torch.load import load
        from headway.executor.torch.loading.checkpoint import locate
        from headway.executor.torch.memory.memory_plan import Limits
    except ModuleNotFoundError as error:
        raise SettingError(
            f"running a model needs {error.name}: pip install 'headway[torch]'"
        ) from error

    folder = locate(model or EMBEDDED)
    context = min(CONTEXT, read_config(folder).context)
    return load(folder, Limits(slots, slots * context, context, BLOCK_SIZE), dtype, device)


def make_testbed(loaded: "Loaded", name: str, text: Sequence[int] = ()) -> Testbed:
    """A testbed on the wall clock.

    text: token ids that prompts are cut from. Empty: ids from the whole vocabulary, which are
    enough for random weights.
    """
    from headway.executor.torch.threads import set_thread_count, thread_count
    from headway.live.clock import WallClock

    gc.collect()
    gc.freeze()  # exempt what is loaded from collection: scanning it takes tens of milliseconds
    return Testbed(
        model=name,
        dtype=loaded.dtype,
        device=loaded.device,
        num_blocks=loaded.plan.num_blocks,
        block_size=loaded.plan.block_size,
        context=loaded.plan.context,
        text=text or _numbers(loaded.vocab),
        executor=SharedExecutor(loaded.executor),
        clock=WallClock(),
        memory=str(loaded.plan),
        fit=loaded.plan.fit,
        threads=loaded.threads or thread_count(),
        use_threads=set_thread_count,
        fixed_threads=loaded.threads > 0,
        rounding=loaded.rounding,
        gathering=loaded.gathering,
        depth=loaded.executor.traits.steps_in_flight,
    )


def make_corpus_testbed(loaded: "Loaded", model: str | None) -> Testbed:
    """A testbed whose prompts are cut from the shipped corpus, in the model's own tokens."""
    from headway.text.tokenizer import Tokenizer

    tokenizer = Tokenizer(loaded.folder, loaded.vocab)
    text = [token for piece in split_text(read_corpus()) for token in tokenizer.encode(piece)]
    return make_testbed(loaded, display_name(model), text)


def kv_bytes_per_token(loaded: "Loaded") -> int:
    """KV bytes per token of one sequence, over all layers."""
    return loaded.plan.per_block // loaded.plan.block_size


def _numbers(vocab: int) -> tuple[int, ...]:
    """Half a million token ids in which no two windows begin alike."""
    step = next(each for each in (7_919, 7_907, 7_901) if vocab % each)
    return tuple((place * step + place // vocab) % vocab for place in range(1 << 19))
