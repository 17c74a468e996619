"""Runs the kernels' cases in a separate process, where triton is imported as they need it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CASES = sorted(map(str, Path(__file__).parent.glob("*/*_cases.py")))


def test_the_kernels_cases_pass_in_the_interpreter_or_on_the_gpu():
    """triton decides at its import whether it interprets, and another test may have imported it
    to compile."""
    pytest.importorskip("triton")
    set_there = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-cov", *CASES],
        env=os.environ | set_there,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
