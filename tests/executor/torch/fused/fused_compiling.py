"""Compiles the fused kernels for GPUs that are not here. Run by test_fused_compiled.py."""

import sys
import tempfile

import torch
import triton

from headway.executor.torch.fused.expert_kernels import add_up, grouped_product
from headway.executor.torch.fused.grouped_experts import OPTIONS, SUM_COLUMNS, ProductTiles
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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder
        experts()
    sys.exit(0)
