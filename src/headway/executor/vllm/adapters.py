"""LoRA adapters (Hu et al. 2021), as peft writes them, in vLLM's workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from headway.errors import CheckpointError, HeadwayError, first_line
from headway.executor.torch.config.config_reader import read_json
from headway.executor.torch.loading.checkpoint import locate

CONFIG = "adapter_config.json"
WEIGHTS = ("*.json", "*.safetensors")


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
