"""LoRA adapters (Hu et al. 2021), as peft writes them, in vLLM's workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from safetensors import SafetensorError

from headway.errors import CheckpointError, HeadwayError, first_line
from headway.executor.torch.config.config_reader import read_json
from headway.executor.torch.config.stored_tensors import stored_tensors
from headway.executor.torch.loading.checkpoint import FLOAT_DTYPES, locate

CONFIG = "adapter_config.json"
WEIGHTS = ("*.json", "*.safetensors")
BASE, INNER, OUTER = "base_model.model.", ".lora_A.weight", ".lora_B.weight"  # in tensors' names


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter. vLLM identifies it by its number, which starts at 1."""

    name: str
    number: int
    folder: Path
    rank: int  # the largest of its matrices

    def request(self) -> Any:
        """vLLM's LoRARequest."""
        from vllm.lora.request import LoRARequest

        return LoRARequest(self.name, self.number, str(self.folder))


def read_adapters(adapters: Mapping[str, str]) -> tuple[Adapter, ...]:
    """Read adapters, in the given order. adapters: folders or hub ids, by name.

    Raises CheckpointError for a source that is not an adapter.
    """
    found = []
    for number, (name, source) in enumerate(adapters.items(), 1):
        folder = locate(source, WEIGHTS)
        if not (folder / CONFIG).is_file():
            raise CheckpointError(f"the adapter {name}: {folder} has no {CONFIG}")
        plain = read_json(folder / CONFIG)
        patterns = plain.get("rank_pattern") or {}
        ranks = [plain.get("r"), *(patterns.values() if isinstance(patterns, dict) else [None])]
        if not all(type(each) is int and each > 0 for each in ranks):
            raise CheckpointError(f"the adapter {name}: {CONFIG} has no rank 'r'")
        found.append(Adapter(name, number, folder, max(ranks)))
    return tuple(found)


def check_fits(adapters: Sequence[Adapter], folder: Path) -> None:
    """Check that the adapters were made for the model in this folder, by the shapes of the matrices
    that they change. vLLM would write a smaller matrix into a corner of a larger one's place.

    A matrix that is not stored in floats or has another name in the model is not compared. Raises
    CheckpointError.
    """
    model = _shapes(folder) if adapters else {}
    for each in adapters:
        parts = _shapes(each.folder)
        for name, inner in parts.items():
            module = name.removesuffix(INNER)
            outer = parts.get(module + OUTER, ())
            wanted = model.get(module.removeprefix(BASE) + ".weight", ())
            if not (len(inner) == len(outer) == len(wanted) == 2):
                continue
            changed = outer[0], inner[1]
            if sorted(changed) != sorted(wanted):  # some families store a matrix transposed
                raise CheckpointError(
                    f"the adapter {each.name} was made for another model: it changes "
                    f"{module.removeprefix(BASE)} as {list(changed)}, which is {list(wanted)} here"
                )


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in floats in a folder's files, by name."""
    found = dict[str, tuple[int, ...]]()
    for path in folder.glob("*.safetensors"):
        try:
            stored = stored_tensors(path)
        except SafetensorError as error:
            raise CheckpointError(f"{path} is damaged or cut short: {first_line(error)}") from None
        found |= {name: each.shape for name, each in stored.items() if each.dtype in FLOAT_DTYPES}
    return found


def adapter_args(adapters: Sequence[Adapter]) -> dict[str, Any]:
    """Arguments of vLLM's engine, with room for all adapters at once: any step may mix them.

    One extra place stays empty. In a step where other rows have adapters, vLLM's CPU kernels (0.32)
    apply the last place's adapter to rows without one.
    """
    if not adapters:
        return {}
    from vllm.config.lora import MaxLoRARanks

    most = max(each.rank for each in adapters)
    rank = next((each for each in sorted(get_args(MaxLoRARanks)) if each >= most), most)
    return {"enable_lora": True, "max_loras": len(adapters) + 1, "max_lora_rank": rank}


def add_adapters(executor: Any, adapters: Sequence[Adapter]) -> None:
    """Load the adapters into the workers, where they stay. executor: vLLM's.

    Raises HeadwayError for an adapter that vLLM refuses.
    """
    for each in adapters:
        try:
            executor.collective_rpc("add_lora", args=(each.request(),))
        except Exception as error:  # of any kind: vLLM's own words say what is wrong
            raise HeadwayError(
                f"vLLM refuses the adapter {each.name}: {first_line(error)}"
            ) from error
