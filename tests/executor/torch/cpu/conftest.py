"""The kernels, as they are built for this machine, and for one with AVX2 alone."""

import os

import pytest
import torch
from transformers import AutoModelForCausalLM

from headway.executor.torch.config.processor import cpu_flags
from headway.executor.torch.cpu import build
from headway.executor.torch.cpu.library import Kernels, kernels
from tests.executor.torch.tiny_checkpoints import Golden, make

PLAIN = ("-O2", "-mavx2", "-mfma", *(flag for flag in build.FLAGS if not flag.startswith("-march")))


@pytest.fixture(scope="session")
def avx2(tmp_path_factory):
    """As on a processor that has no more than AVX2."""
    if not cpu_flags() >= build.NEEDED or kernels() is None:
        pytest.skip("there are no kernels here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "FLAGS", PLAIN)
        file = tmp_path_factory.mktemp("kernels") / "avx2.so"
        build._build(os.environ.get("CXX", "g++"), file)
    return Kernels(file)


@pytest.fixture(params=["native", "avx2"])
def built(request):
    if request.param == "avx2":
        return request.getfixturevalue("avx2")
    return kernels() or pytest.skip("there are no kernels here")


@pytest.fixture(scope="session")
def halves(tmp_path_factory):
    """A checkpoint in bfloat16 whose matrices fill panels, and transformers' model of it."""
    folder = tmp_path_factory.mktemp("halves")
    wide = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    make(folder, "qwen2-bias-tied", **wide, **heads).model.bfloat16().save_pretrained(folder)
    return Golden(folder, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())
