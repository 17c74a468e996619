"""A testbed that runs a loaded model on the wall clock."""

import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.errors import SettingError
from headway.models import EMBEDDED, display_name
from headway.runs.corpus import read_corpus, split_text
from headway.runs.shared_executor import SharedExecutor
from headway.runs.testbed import BLOCK_SIZE, CONTEXT, Testbed
from headway.strategies.strategy import SLOTS

if TYPE_CHECKING:
    from headway.executor.torch.load import LoadedModel


def load_testbed(model: str | None) -> Testbed:
    """A checkpoint on which strategies are compared. Raises as load_model does."""
    return make_corpus_testbed(load_model(model, SLOTS), model)


def load_model(model: str | None, slots: int, dtype: str = "", device: str = "") -> "LoadedModel":
    """model: a checkpoint's folder or hub id; None: the embedded one. Raises as loading does."""
    # torch is an extra, and slow to import: only who runs a model pays for it.
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


def make_testbed(loaded: "LoadedModel", name: str, text: Sequence[int] = ()) -> Testbed:
    """A testbed on the wall clock.

    text: token ids that prompts are cut from; none: numbers from the vocabulary, which suffice for
    random weights.
    """
    from headway.executor.torch.threads import set_thread_count, thread_count
    from headway.live.clock import WallClock

    gc.collect()
    gc.freeze()  # what is loaded stays: looking through it again would take tens of milliseconds
    return Testbed(
        model=name,
        dtype=loaded.dtype,
        device=loaded.device,
        num_blocks=loaded.plan.num_blocks,
        block_size=loaded.plan.block_size,
        context=loaded.plan.context,
        text=text or _numbers(loaded.config.vocab),
        executor=SharedExecutor(loaded.executor),
        clock=WallClock(),
        memory=str(loaded.plan),
        fit=loaded.plan.fit,
        threads=thread_count(),
        use_threads=set_thread_count,
        rounding=loaded.executor.model.rounding,
        gathering=loaded.executor.cache.gathering,
    )


def make_corpus_testbed(loaded: "LoadedModel", model: str | None) -> Testbed:
    """A testbed whose prompts are cut from the shipped corpus, in the model's own tokens."""
    from headway.tokenizer import Tokenizer

    tokenizer = Tokenizer(loaded.folder, loaded.config.vocab)
    text = [token for piece in split_text(read_corpus()) for token in tokenizer.encode(piece)]
    return make_testbed(loaded, display_name(model), text)


def kv_bytes_per_token(loaded: "LoadedModel") -> int:
    """Per token of one sequence, all layers."""
    return loaded.plan.per_block // loaded.plan.block_size


def _numbers(vocab: int) -> tuple[int, ...]:
    """Half a million token ids, in which no two windows begin alike."""
    step = next(each for each in (7_919, 7_907, 7_901) if vocab % each)
    return tuple((place * step + place // vocab) % vocab for place in range(1 << 19))
