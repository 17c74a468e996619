"""python -m benchmarks.peers.products THREADS ROWS...: how fast memory is read here, and how long
all products of a step take, by every library at hand. One JSON line.

It runs in a process of its own, so that no other library's threads are there. The weights of a step
lie in memory all at once, as they do in an engine: none is in a cache when its turn comes.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.vllm.served import HALF_B
from headway.executor.torch.cpu.half import HalfMatrix
from headway.executor.torch.cpu.library import kernels
from headway.executor.torch.layers.linear import pack

Product = Callable[[Tensor], Tensor]
Maker = Callable[[Tensor], Product]  # of a weight [outputs, inputs] in float32

HIDDEN, WIDE, LAYERS, VOCAB = 896, 4_864, 24, 151_936
SHAPES = ((1_152, HIDDEN), (HIDDEN, HIDDEN), (2 * WIDE, HIDDEN), (HIDDEN, WIDE))
ONCE, TURNS = 0.4, 5  # seconds of one size at most, after two turns; turns at most
TOO_LONG = 5.0  # seconds of one turn, beyond which no more rows are tried
assert (HALF_B["hidden_size"], HALF_B["num_hidden_layers"]) == (HIDDEN, LAYERS)
assert (HALF_B["intermediate_size"], HALF_B["vocab_size"]) == (WIDE, VOCAB)


def plain(dtype: torch.dtype) -> Maker:
    def make(weight: Tensor) -> Product:
        kept = weight.to(dtype)
        return lambda x: torch.nn.functional.linear(x, kept)

    return make


def packed(dtype: torch.dtype) -> Maker:
    """oneDNN's, packed once."""

    def make(weight: Tensor) -> Product:
        kept = pack(weight.to(dtype))
        if kept is None:
            raise RuntimeError("oneDNN packs no such weight here")
        return lambda x: torch.ops.mkldnn._linear_pointwise(x, kept, None, "none", [], "")

    return make


def ours(weight: Tensor) -> Product:
    """headway's own kernel, by the processor's products of pairs in bfloat16."""
    library, half = kernels(), weight.to(torch.bfloat16)
    if library is None or torch.bfloat16 not in library.dtypes:
        raise RuntimeError("there are no such products here")
    kept = library.half_panels([half])
    return lambda x: library.product(x, kept.data_ptr(), len(half), None)


def ours_widened(weight: Tensor) -> Product:
    """headway's own kernel, which multiplies in float32."""
    library = kernels()
    if library is None:
        raise RuntimeError("our kernels do not run here")
    kept = HalfMatrix([weight.to(torch.bfloat16)], library)
    return lambda x: kept.product(x, None)


def ours_int8(weight: Tensor) -> Product:
    """headway's own kernel: rows are quantised at each call, which is timed with it."""
    library = kernels()
    if library is None:
        raise RuntimeError("our kernels do not run here")
    kept = library.int8.pack([weight])
    return lambda x: kept.product(x, None)


def fbgemm(weight: Tensor) -> Product:
    """torch's quantised product: weights in int8, activations quantised at each call."""
    torch.backends.quantized.engine = "fbgemm"
    scales = weight.abs().amax(1) / 127
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    small = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
    kept = torch.ops.quantized.linear_prepack(small, None)
    return lambda x: torch.ops.quantized.linear_dynamic(x, kept, False)


def onednn_int8(weight: Tensor) -> Product:
    """oneDNN's product of int8, which rows are quantised for before it: only it is timed."""
    scales = weight.abs().amax(1) / 127
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    small = (weight / scales[:, None]).round().to(torch.int8)
    kept = torch.ops.onednn.qlinear_prepack(small, None)

    def multiply(x: Tensor) -> Tensor:
        more: tuple[Any, ...] = (scales, zeros, None, 1.0, 0, torch.bfloat16, "none", [], "")
        y: Tensor = torch.ops.onednn.qlinear_pointwise(x, 0.02, 128, kept, *more)
        return y

    return multiply


def libraries() -> Iterator[tuple[str, str, torch.dtype, Maker]]:
    """Name, the precision whose bound it counts for, kind of the rows, how a weight is made."""
    half, single = torch.bfloat16, torch.float32
    yield "headway's kernel, bfloat16", "16bit", half, ours
    yield "headway's kernel, widened", "16bit", half, ours_widened
    yield "oneDNN packed, bfloat16", "16bit", half, packed(half)
    yield "torch F.linear, bfloat16", "16bit", half, plain(half)
    yield "oneDNN packed, float32", "16bit", single, packed(single)
    yield "headway's kernel, int8", "int8", half, ours_int8
    yield "fbgemm, int8", "int8", single, fbgemm
    yield "oneDNN, int8", "int8", torch.uint8, onednn_int8


def rows_of(kind: torch.dtype, rows: int, inputs: int) -> Tensor:
    if kind is torch.uint8:
        return torch.randint(0, 255, (rows, inputs), dtype=torch.uint8)
    return torch.randn(rows, inputs).to(kind)


def least(products: list[Product], xs: list[Tensor]) -> float:
    """Seconds of all of them in turn: the least of some turns."""
    times, until = list[float](), time.perf_counter() + ONCE
    while len(times) < 3 or (time.perf_counter() < until and len(times) < TURNS):
        began = time.perf_counter()
        for product, x in zip(products, xs, strict=True):
            product(x)
        times.append(time.perf_counter() - began)
    return min(times)


def timed(kind: torch.dtype, make: Maker, sizes: list[int]) -> dict[str, dict[int, float]]:
    """Seconds of the layers' and of the head's products at each number of rows that works."""
    layers = [make(torch.randn(shape) * 0.02) for _ in range(LAYERS) for shape in SHAPES]
    head = make(torch.randn(VOCAB, HIDDEN) * 0.02)
    found: dict[str, dict[int, float]] = {"layers": {}, "head": {}}
    for rows in sizes:
        hidden, wide = rows_of(kind, rows, HIDDEN), rows_of(kind, rows, WIDE)
        try:
            found["layers"][rows] = least(layers, [hidden, hidden, hidden, wide] * LAYERS)
            found["head"][rows] = least([head], [hidden])
        except RuntimeError:
            break
        if found["layers"][rows] > TOO_LONG:
            break
    return found


def read_by_torch() -> float:
    """Bytes a second of a sum over a gibibyte."""
    numbers = torch.ones(1 << 28)
    return numbers.nbytes / least([torch.sum], [numbers])


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    sizes = sorted(int(word) for word in sys.argv[2:])
    found: dict[str, Any] = {"read_by_torch": read_by_torch(), "products": [], "missing": {}}
    weights = sum(a * b for a, b in SHAPES) * LAYERS + VOCAB * HIDDEN
    found["bytes"] = {}
    with torch.inference_mode():
        for name, precision, kind, make in libraries():
            try:
                times = timed(kind, make, sizes)
            except (RuntimeError, AttributeError, TypeError) as error:
                found["missing"][name] = str(error).splitlines()[0][:120]
                continue
            found["products"].append({"library": name, "precision": precision, **times})
            found["bytes"][name] = weights * (1 if precision == "int8" else kind.itemsize)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
