"""The kernels compile for GPUs from compute capability 8.0 on, and fit their shared memory."""

import os
import subprocess
import sys

import pytest


@pytest.mark.evidence
def test_the_kernels_compile_without_a_gpu():
    pytest.importorskip("triton")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    module = "tests.executor.torch.attention.compiling"
    done = subprocess.run(
        [sys.executable, "-m", module], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
