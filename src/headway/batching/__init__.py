"""Batch the calls of any function with the engine: Batcher, and the decorator batch."""

from headway.batching.batcher import Batcher
from headway.batching.decorator import batch
from headway.batching.settings import BatchSettings
from headway.batching.stream import DONE

__all__ = ["DONE", "BatchSettings", "Batcher", "batch"]
