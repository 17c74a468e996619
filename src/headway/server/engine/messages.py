"""The messages between the server and the engine process. Pickling them needs no torch.

front  -- tuple of commands -------------------------------->  engine process
       <-- Progress*, then Welcome or Failed, then a Step per step, at the end perhaps Failed --
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

from headway.core.accounts.stages import RequestStages
from headway.core.batch import Event
from headway.core.lane import Lane
from headway.core.ledger import RequestRow, SizeChange, StepRow
from headway.core.load import Load
from headway.core.policies.policies import Policies
from headway.errors import HeadwayError
from headway.executor.load import TORCH
from headway.executor.traits import Traits
from headway.server.engine.device_work import DeviceWork
from headway.text.tokenizer import Tokenizer
from headway.vectors.model_card import ModelCard

Columns = tuple[tuple[Any, ...], ...]  # one per field of an Event, in field order
EMPTY = Event("")  # holds each field's empty value


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options that an engine process is started with."""

    model: str | None = None  # a folder or a hub id; None: the embedded headway-tiny
    # Empty: the checkpoint's own dtype, if the CPU is fast at it. With +int8: 8-bit weights.
    dtype: str = ""
    device: str = ""  # as torch names it; empty: cuda if there is one, else cpu
    policies: Policies = Policies()
    lanes: tuple[Lane, ...] = (Lane(),)
    slots: int = 32  # the most sequences that run at once
    context: int = 0  # tokens that one sequence may hold; 0: what the model was made for
    block_size: int = 16
    executor: str = TORCH
    vllm: Mapping[str, Any] = field(default_factory=dict)  # options of the vLLM executor
    adapters: Mapping[str, str] = field(default_factory=dict)  # LoRA: folder or hub id, by name
    threads: int = 0  # CPU threads per matrix product; 0: chosen here, one if the model is small
    journal: str = ""  # the files' name, to which a date is added; empty: no journal
    journal_bytes: int = 0  # size at which a new part begins; 0: everything in one file
    cost: str = ""  # a cost.json to compare steps with; empty: none
    memory: int = 0  # bytes the engine may take, its weights included; 0: all that are free
    engines: int = 1  # engines that share the processor, this one included

    @property
    def daemon(self) -> bool:
        """Whether the process can be a daemon. A daemon may have no children; vLLM has workers."""
        return self.executor == TORCH


@dataclass(frozen=True, slots=True)
class Progress:
    """How far loading the model has come."""

    text: str  # human-readable


@dataclass(frozen=True, slots=True)
class Welcome:
    """The engine is ready. Carries what the server must know about it."""

    model: str  # its name
    folder: str  # where its files are
    tokenizer: Tokenizer
    dtype: str
    device: str
    capacity: int  # tokens that one request may hold
    num_blocks: int
    block_size: int
    context: int  # tokens
    eos: frozenset[int]
    memory: str  # how the memory is used, in lines for people
    load: Load  # before the first step
    traits: Traits = Traits()  # the executor's
    card: ModelCard = ModelCard()  # what the checkpoint says about its vectors
    work: DeviceWork = DeviceWork()  # the work of a step on the device
    load_ns: int = 0  # nanoseconds from the start of the process until it was ready
    cost_warnings: tuple[str, ...] = ()  # reasons to doubt the cost file's prices


@dataclass(frozen=True, slots=True)
class Failed:
    """The last message: the engine could not be made, or has failed."""

    error: HeadwayError


class Step(NamedTuple):
    """The results of one step, or of one poll without a step."""

    events: list[Event]
    steps: list[StepRow]
    requests: list[RequestRow]
    load: Load
    taken: int  # requests taken in so far; `load` includes them
    journal: str = ""  # why the journal has stopped; empty: it has not, or there is none
    changes: Sequence[SizeChange] = ()  # changes of the sizes that adapt to the load
    stages: Sequence[RequestStages] = ()  # the time that `requests` spent in each stage

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (columns(self.events), *self[1:])


def columns(events: Sequence[Event]) -> Columns:
    """The events as columns, field by field. A field that is empty in all events is an empty tuple.

    A decode step has one event per sequence, most with only an id and tokens. Pickling 64 events
    one by one took five times as long.
    """
    if not events:
        return ()
    ids, *others = zip(*events, strict=True)
    return ids, *[field if any(field) else () for field in others]


def events_of(columns: Columns) -> list[Event]:
    """The events of these columns: the inverse of `columns`."""
    filled = [column or repeat(empty) for column, empty in zip(columns, EMPTY, strict=False)]
    # What Event._make does, without a Python call per event.
    return list(map(tuple.__new__, repeat(Event), zip(*filled, strict=False)))


def _unpickled(columns: Columns, *others: Any) -> Step:
    return Step(events_of(columns), *others)
