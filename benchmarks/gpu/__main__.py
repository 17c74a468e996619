"""What share of a GPU's measured rates does our torch executor reach?

On the shape of Llama-3.1-8B in bfloat16 with random weights, made on the device; in one call of
less than ten minutes, with nothing installed beyond torch and what headway imports:

    PYTHONPATH=src:. python3 -m benchmarks.gpu

`decode_share_64` and `_256`: the least time of a decode step over the measured one, at a context of
1,024. The least time is the sum over the step's products and attentions of the larger of bytes /
measured copy rate and FLOPs / measured product rate. `prefill_share`: FLOP/s of a prompt of 2,048
tokens over the measured product rate. `transformers_ratio`: our tokens a second over those of
transformers' continuous batching, same requests, same run. Then static, dynamic and continuous
batching, and errors of the simulator, calibrated here.

--tiny runs all of it on a tiny shape, on a CPU too: no evidence, but it shows that it runs.
--parts steps,served,others chooses. --check exits 1 when a figure falls short.
"""

import argparse
import gc
import sys
from dataclasses import replace
from time import perf_counter

import torch

from benchmarks.gpu.bound import Bound, step_flops
from benchmarks.gpu.others import answer_seconds
from benchmarks.gpu.served import Served
from benchmarks.gpu.shape import EIGHT_B, SMALLEST, Size, load
from benchmarks.gpu.steps import Steps
from benchmarks.report import Figure, finish
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.executor.torch.load import LoadedModel
from headway.figures.engine_figures import engine_figures
from headway.runs.live_testbed import make_testbed
from headway.runs.run import Run

SEED, PARTS = 0, ("steps", "served", "others")
AIMS = {64: 0.75, 256: 0.65}  # of decode's share, by rows


def step_figures(loaded: LoadedModel, size: Size) -> list[Figure]:
    config, steps = loaded.config, Steps(loaded)
    dtype = getattr(torch, loaded.dtype)
    bound = Bound.measured(dtype, steps.device)
    figures = [
        Figure("copy_rate", [bound.copy / 1e9], unit="GB/s"),
        Figure("product_rate", [bound.product / 1e12], unit="TFLOP/s"),
    ]
    for rows in size.rows:
        least = bound.step(config, dtype.itemsize, [(size.held, 1)] * rows)
        took = steps.decode_seconds(rows, size.held, size.steps)
        aim = AIMS.get(rows)
        figures.append(Figure(f"decode_ms_{rows}", [1e3 * each for each in took], unit="ms"))
        figures.append(Figure(f"decode_share_{rows}", [least / each for each in took], least=aim))
    flops = step_flops(config, [(0, size.prompt)])
    shares = [flops / each / bound.product for each in steps.prefill_seconds(size.prompt)]
    return [*figures, Figure("prefill_share", shares, least=0.6)]


def compared(size: Size, device: torch.device) -> list[Figure]:
    """Tokens a second of headway and transformers, on prompts and answers of one length."""
    prompt, answer, count = size.most_prompt // 4, size.most_answer // 4, 2 * size.slots
    prompts = [tuple((i * 31 + j) % 500 for j in range(prompt)) for i in range(count)]
    loaded = load(size, str(device))
    testbed = make_testbed(loaded, size.name)
    policies = Policies(Continuous(size.slots), chunk=Fixed(512), step_tokens=size.slots + 512)
    asked = [Request(f"t{i}", each, answer, 0, "all") for i, each in enumerate(prompts)]
    outcome = Run(testbed, policies, [Lane("all")], asked).serve()
    mine = engine_figures(outcome).tokens_per_second
    del testbed, loaded
    free()
    try:
        theirs = answer * count / answer_seconds(size, prompts, answer, device)
    except Exception as error:  # its interface changes: the rest of the run still counts
        print(f"transformers' continuous batching did not run: {error!r}", flush=True)
        return [Figure("continuous_tokens_s", [mine])]
    return [
        Figure("continuous_tokens_s", [mine]),
        Figure("transformers_tokens_s", [theirs]),
        Figure("transformers_ratio", [mine / theirs], least=1.5),
    ]


def free() -> None:
    """Give the device's memory back."""
    gc.unfreeze()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def told(figures: list[Figure]) -> list[Figure]:
    """The figures, unchanged. They are printed at once, because what comes later may fail."""
    for each in figures:
        print(f"{each.name}: {each.value:.4g} {each.unit}", flush=True)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", default=",".join(PARTS))
    asked = parser.parse_args()
    parts, device = asked.parts.split(","), torch.device(asked.device)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    if device.type == "cpu" and not asked.tiny:
        parser.error("there is no GPU here: with --tiny it runs on a CPU, as no evidence")
    size, began = SMALLEST if asked.tiny else EIGHT_B, perf_counter()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
    print(f"{size.name}; torch {torch.__version__} on {name}", flush=True)
    figures = list[Figure]()
    if {"steps", "served"} & set(parts):
        loaded = load(size, asked.device)
        print(f"{loaded.plan}; {perf_counter() - began:.0f} s", flush=True)
        if "steps" in parts:
            figures += told(step_figures(loaded, size))
            print(f"steps: {perf_counter() - began:.0f} s", flush=True)
        if "served" in parts:
            served = Served.of(loaded, size, SEED)
            found, rate = served.strategies()
            figures += told(found)
            figures += told(served.simulated(rate, SEED))
            del served
        del loaded
        free()
    if "others" in parts:
        figures += told(compared(size, device))
    if not size.aims:
        figures = [replace(figure, most=None, least=None) for figure in figures]
    print(f"all: {perf_counter() - began:.0f} s", flush=True)
    return finish("gpu-tiny" if asked.tiny else "gpu", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
