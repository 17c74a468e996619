"""A device's peaks: memory bandwidth, and FLOP per second in a dtype."""

import os
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

READ_BYTES = {"cpu": 256 << 20}  # bytes of the summed tensor: too large for any cache
READ_BYTES_ELSEWHERE = 2 << 30
LARGEST_SIDE = {"cpu": 2_048}  # largest side of the square matrices
LARGEST_SIDE_ELSEWHERE = 8_192
SMALLEST_SIDE = 256  # first side; each next one is twice as long
LONG_NS = 50_000_000  # nanoseconds: a product that takes this long is large enough
QUIET = "99"  # log level of the profiler's library, so that it prints nothing to stderr
TRIALS = 7  # the fastest counts: a peak is what the device does undisturbed


@torch.inference_mode()
def memory_bandwidth(device: str, now: Callable[[], int]) -> float:
    """Bytes per second, summing one large tensor. now: nanoseconds."""
    nbytes = READ_BYTES.get(torch.device(device).type, READ_BYTES_ELSEWHERE)
    numbers = torch.ones(nbytes // 4, dtype=torch.float32, device=device)
    return nbytes * 1e9 / _best_time(numbers.sum, now)


@torch.inference_mode()
def matmul_speed(dtype: str, device: str, now: Callable[[], int]) -> float:
    """FLOP per second of one large product in this dtype. The size grows until a product takes
    LONG_NS: without native products in the dtype, the largest would take 15 seconds."""
    most, side, took = (
        LARGEST_SIDE.get(torch.device(device).type, LARGEST_SIDE_ELSEWHERE),
        SMALLEST_SIDE // 2,
        0,
    )
    while side < most and took < LONG_NS:
        side *= 2
        square = torch.full((side, side), 0.5, dtype=getattr(torch, dtype), device=device)
        took = _best_time(partial(torch.matmul, square, square), now)
    return 2 * side**3 * 1e9 / took


def _best_time(work: Callable[[], Tensor], now: Callable[[], int]) -> int:
    times = list[int]()
    for _ in range(TRIALS + 1):
        began = now()
        work().flatten()[0].item()  # waits for the device
        times.append(now() - began)
    return min(times[1:])


def operator_shares(run: Callable[[], object], device: str) -> dict[str, float]:
    """Each torch operator's share of the time of `run`, largest first."""
    os.environ.setdefault("KINETO_LOG_LEVEL", QUIET)
    from torch.profiler import ProfilerActivity, profile

    wide = torch.device(device).type != "cpu"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if wide else [])]
    with profile(activities=activities) as profiled:
        run()
    spent = {
        each.key: each.self_device_time_total if wide else each.self_cpu_time_total
        for each in profiled.key_averages()
    }
    whole = sum(spent.values()) or 1.0
    return {name: time / whole for name, time in sorted(spent.items(), key=lambda pair: -pair[1])}
