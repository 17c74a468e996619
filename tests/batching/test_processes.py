"""The processes that share a batcher's calls."""

import os
import signal
import subprocess
import sys

KILLED = """
import os
import signal
import headway
from tests.batching.test_processes import pids

batcher = headway.Batcher(pids, processes=1)
print(batcher.call(0), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def pids(items):
    return [os.getpid()] * len(items)


def test_the_processes_of_a_killed_program_end_with_it():
    command = [sys.executable, "-c", KILLED]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    worker = int(program.stdout.readline())
    try:
        assert program.communicate(timeout=30) == (b"", None), "nobody holds its pipe any more"
    except subprocess.TimeoutExpired:
        os.kill(worker, signal.SIGKILL)
        raise
