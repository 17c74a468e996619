"""The bytes of a folder's weights once their floats are widened or narrowed."""

import torch
from safetensors.torch import save_file

from headway.executor.torch.loading.weight_bytes import stored_bytes


def test_floats_count_in_their_new_width_and_the_rest_as_stored(tmp_path):
    kinds = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I8": torch.int8}
    for name, kind in kinds.items():
        save_file({name: torch.zeros(10, 100, dtype=kind)}, tmp_path / f"{name}.safetensors")
    stored = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert stored_bytes(tmp_path, 0) == stored
    assert stored_bytes(tmp_path, 4) == stored + 2 * 2_000
    assert stored_bytes(tmp_path, 2) == stored - 2_000


def test_a_damaged_file_counts_as_stored(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    assert stored_bytes(tmp_path, 4) == 10


def test_a_link_to_a_file_that_is_gone_counts_as_nothing(tmp_path):
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    (tmp_path / "folder.safetensors").mkdir()
    assert stored_bytes(tmp_path, 4) == 0
