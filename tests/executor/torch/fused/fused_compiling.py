"""Compiles the fused kernels for GPUs that this machine lacks. Run by test_fused_compiled.py."""

import sys
import tempfile

import torch
import triton

from headway.executor.torch.fused.expert_kernels import add_up, grouped_product
from headway.executor.torch.fused.fused_operators import GATE_COLUMNS
from headway.executor.torch.fused.grouped_experts import OPTIONS, SUM_COLUMNS, ProductTiles
from headway.executor.torch.fused.token_kernels import add_norm, gate_up, turn_and_write
from tests.executor.torch.attention.compiling import POINTERS, SHARED, compiled

EXPERTS = [  # dtype, assignments, experts, chosen, hidden, intermediate, compute capability
    (torch.bfloat16, 64, 8, 2, 4096, 14336, 90),
    (torch.bfloat16, 8192, 128, 8, 2048, 768, 80),
    (torch.float32, 8192, 8, 2, 4096, 14336, 89),
]


def experts():
    for dtype, assignments, count, chosen, hidden, wide, capability in EXPERTS:
        tiles, pointer = ProductTiles.of(assignments, count, dtype.itemsize), POINTERS[dtype]
        arguments = dict.fromkeys(("rows", "weights", "out"), pointer)
        arguments |= {"order": "*i64", "ends": "*i32", "assignments": "i32"}
        constants = {"CHOSEN": chosen, "EXPERTS": count, "EXPERTS_PADDED": count}
        constants |= {"TILE_ROWS": tiles.rows, "TILE_COLUMNS": tiles.columns}
        constants |= {"TILE_SIZE": tiles.size, "PRECISION": "ieee"}
        for first, size, columns in ((True, hidden, 2 * wide), (False, wide, hidden)):
            shape = {"SIZE": size, "COLUMNS": columns, "FIRST": first}
            made = compiled(grouped_product, arguments, constants | shape, capability, **OPTIONS)
            assert made.asm["cubin"] and made.metadata.shared <= SHARED, made.metadata.shared
            if dtype is not torch.float32:
                assert "mma" in made.asm["ptx"], "products run on tensor cores"
        arguments = dict.fromkeys(("found", "shares", "out"), pointer)
        constants = {"SIZE": hidden, "CHOSEN": chosen, "COLUMNS": SUM_COLUMNS}
        assert compiled(add_up, arguments, constants, capability).asm["cubin"]


def tokens():
    for dtype, size, wide, weight in (
        (torch.bfloat16, 4096, 14336, "*bf16"),
        (torch.bfloat16, 2304, 9216, "*fp32"),
        (torch.float32, 896, 4864, "*fp32"),
    ):
        pointer = POINTERS[dtype]
        arguments = dict.fromkeys(("x", "found", "total", "normed"), pointer)
        arguments |= {"after": weight, "before": weight, "x_stride": "i32", "normed_stride": "i32"}
        constants = {"SIZE": size, "PADDED": 4096, "EPS": 1e-5, "SCALE": 0.5}
        constants |= dict.fromkeys(("ADDS", "AFTER", "BEFORE"), True)
        assert compiled(add_norm, arguments, constants, 80, num_warps=8).asm["cubin"]
        names = ("qkv", "cosines", "sines", "queries", "keys", "values")
        arguments = dict.fromkeys(names, pointer) | {"positions": "*i64", "cells": "*i64"}
        arguments |= {"q_weight": weight, "k_weight": weight}
        constants = {"HEADS": 14, "KV_HEADS": 2, "HEAD_DIM": 96, "PADDED": 128, "PAIRS": 36}
        constants |= {"EPS": 1e-5, "NORMS": True, "TURNS": True}
        assert compiled(turn_and_write, arguments, constants, 90, num_warps=1).asm["cubin"]
        arguments = {"wide": pointer, "out": pointer}
        constants = {"SIZE": wide, "COLUMNS": GATE_COLUMNS, "SILU": weight == "*bf16"}
        assert compiled(gate_up, arguments, constants, 90).asm["cubin"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder
        experts()
        tokens()
    sys.exit(0)
