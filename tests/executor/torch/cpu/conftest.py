"""The kernels, as they are built for this machine, and for one with AVX2 alone."""

import os

import pytest

from headway.executor.torch.config.processor import cpu_flags
from headway.executor.torch.cpu import build
from headway.executor.torch.cpu.library import Kernels, kernels

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
