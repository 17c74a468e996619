"""Fixtures: one tiny checkpoint per shape, made once."""

import pytest
import torch

from tests.executor.torch.tiny_checkpoints import MORE, SHAPES, Golden, make


@pytest.fixture(autouse=True, scope="session")
def _few_threads():
    """The models are tiny, and other work may share the machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def goldens(tmp_path_factory) -> dict[str, Golden]:
    """The golden checkpoints, by shape."""
    return {shape: make(tmp_path_factory.mktemp(shape), shape) for shape in [*SHAPES, *MORE]}


@pytest.fixture(scope="session")
def golden(goldens) -> Golden:
    """One golden checkpoint, for tests that do not depend on the shape."""
    return goldens["qwen2-bias-tied"]
