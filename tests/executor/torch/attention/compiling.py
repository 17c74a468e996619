"""Compiles the kernels for GPUs not in this machine. Run by test_compiled.py, uninterpreted."""

import sys
import tempfile
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from headway.executor.torch.attention.kernels import attend, merge
from headway.executor.torch.attention.paged import Tiles, options

SHARED = 99 << 10  # bytes that a program may have on every GPU from compute capability 8.0 on
POINTERS = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
CASES = [  # dtype, heads, KV heads, head dimension, window, cap, compute capability
    (torch.bfloat16, 16, 8, 256, 4096, 50.0, 90),
    (torch.float16, 14, 2, 64, 0, 0.0, 80),
    (torch.float32, 8, 4, 64, 0, 0.0, 89),
]


def compiled(kernel, arguments, constants, capability, **settings):
    """arguments: name -> type; those of pointers begin at multiples of 16 bytes."""
    signature = arguments | dict.fromkeys(constants, "constexpr")
    signature = {name: signature[name] for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, kind in enumerate(signature.values())
        if kind.startswith("*")
    }
    source = ASTSource(kernel, signature=signature, constexprs=places, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=settings)


def main():
    for dtype, heads, kv_heads, dims, window, cap, capability in CASES:
        shape = SimpleNamespace(heads=heads, kv_heads=kv_heads, head_dim=dims)
        tiles, pointer = Tiles.of(shape, dtype.itemsize), POINTERS[dtype]
        arguments = dict.fromkeys(("queries", "keys", "values", "out"), pointer)
        arguments |= dict.fromkeys(("tables", "items"), "*i32") | {"stride": "i32"}
        arguments |= dict.fromkeys(("partials", "sums"), "*fp32")
        for rows in (tiles.single_rows, tiles.many_rows):
            constants = {"WIDTH": 512, "SCALE": dims**-0.5, "CAP": cap, "WINDOW": window}
            constants |= {"KV_HEADS": kv_heads, "GROUP": heads // kv_heads, "HEAD_DIM": dims}
            constants |= {"DIMS": tiles.dims, "BLOCK": 16, "TILE_ROWS": rows}
            constants |= {"TILE_KEYS": tiles.keys, "PRECISION": "ieee"}
            made = compiled(attend, arguments, constants, capability, **options(rows))
            assert made.asm["cubin"] and made.metadata.shared <= SHARED, made.metadata.shared
            if dtype is not torch.float32:
                assert "mma" in made.asm["ptx"], "products run on tensor cores"
        arguments = {"partials": "*fp32", "sums": "*fp32", "merges": "*i32", "out": pointer}
        constants = {"HEADS": heads, "HEAD_DIM": dims, "DIMS": tiles.dims}
        assert compiled(merge, arguments, constants, capability, enable_fp_fusion=True).asm["cubin"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder
        main()
    sys.exit(0)
