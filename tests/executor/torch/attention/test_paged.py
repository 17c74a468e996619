"""Runs paged_cases.py in a process of its own, where triton is imported as it is needed there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CASES = Path(__file__).with_name("paged_cases.py")


def test_the_kernels_by_the_interpreter_or_on_the_gpu():
    """triton decides when it is imported whether it interprets, and another test may have
    imported it to compile."""
    pytest.importorskip("triton")
    set_there = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-cov", str(CASES)],
        env=os.environ | set_there,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
