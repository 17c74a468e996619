"""Fixtures: our kernels as built for this machine and for lesser ones."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from headway.executor.torch.config.processor import cpu_flags
from headway.executor.torch.cpu import build
from headway.executor.torch.cpu.library import Kernels, kernels
from tests.executor.torch.tiny_checkpoints import Golden, make

OTHERS = tuple(flag for flag in build.FLAGS if not flag.startswith("-march"))
PROCESSORS = {  # the CPU flags that are needed, and the compiler flags that the build uses
    "avx2": (build.NEEDED, ("-mavx2", "-mfma")),
    "avx512": ({"amx_tile"}, ("-march=native", "-mno-amx-tile")),
}


@pytest.fixture(scope="session", params=["native", *PROCESSORS])
def built(request):
    """Our kernels for this processor, for one without AMX and for one with no more than AVX2. Each
    is built once, into the user's cache."""
    if kernels() is None:
        pytest.skip("there are no kernels here")
    if request.param == "native":
        return kernels()
    needed, flags = PROCESSORS[request.param]
    if not cpu_flags() >= needed:
        pytest.skip("it would be the native one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "FLAGS", (*OTHERS, *flags))
        return Kernels(build.compiled())


@pytest.fixture(scope="session")
def halves(tmp_path_factory):
    """A checkpoint in bfloat16 whose matrices fill panels, and transformers' model of it."""
    folder = tmp_path_factory.mktemp("halves")
    wide = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    make(folder, "qwen2-bias-tied", **wide, **heads).model.bfloat16().save_pretrained(folder)
    return Golden(folder, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())
