"""Fixtures: one tiny checkpoint per shape, made once."""

import pytest
import torch

from tests.executor.torch.tiny_checkpoints import Golden, make


@pytest.fixture(autouse=True, scope="session")
def _few_threads():
    """The models are tiny, and other work may share the machine."""
    torch.set_num_threads(1)


class Goldens(dict[str, Golden]):
    """Golden checkpoints by shape, each made when it is first asked for."""

    def __init__(self, new_folder):
        super().__init__()
        self.new_folder = new_folder

    def __missing__(self, shape):
        self[shape] = make(self.new_folder(shape), shape)
        return self[shape]


@pytest.fixture(scope="session")
def goldens(tmp_path_factory) -> dict[str, Golden]:
    """The golden checkpoints, by shape."""
    return Goldens(tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def golden(goldens) -> Golden:
    """One golden checkpoint, for tests that do not depend on the shape."""
    return goldens["qwen2-bias-tied"]
