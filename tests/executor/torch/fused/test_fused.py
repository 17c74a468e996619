"""Runs the cases beside it in a process of its own, where triton is imported as it is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CASES = sorted(str(path) for path in Path(__file__).parent.glob("*_cases.py"))


def test_the_fused_kernels_by_the_interpreter_or_on_the_gpu():
    """triton decides when it is imported whether it interprets."""
    pytest.importorskip("triton")
    set_there = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-cov", *CASES],
        env=os.environ | set_there,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
