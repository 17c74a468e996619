"""The messages between the server and the engine process. They pickle without torch.

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
from headway.tokenizer import Tokenizer
from headway.vectors.model_card import ModelCard

Columns = tuple[tuple[Any, ...], ...]  # of an Event's fields, in their order
EMPTY = Event("")  # the fields as they are where they are empty


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine process is to be made."""

    model: str | None = None  # a folder or a hub id; None: the embedded headway-tiny
    # Empty: as the checkpoint is stored, if the CPU is quick at it. With +int8, weights in 8 bits.
    dtype: str = ""
    device: str = ""  # as torch names it; empty: cuda if there is one, else cpu
    policies: Policies = Policies()
    lanes: tuple[Lane, ...] = (Lane(),)
    slots: int = 32  # sequences that run at once, at most
    context: int = 0  # tokens that one may hold; 0: what the model was made for
    block_size: int = 16
    executor: str = TORCH
    vllm: Mapping[str, Any] = field(default_factory=dict)  # options of that executor
    adapters: Mapping[str, str] = field(default_factory=dict)  # LoRA: folder or hub id, by name
    threads: int = 0  # of the CPU for one product; 0: chosen, one if the model is small
    journal: str = ""  # the files' name, to which a date is added; empty: no journal
    journal_bytes: int = 0  # of a part, then the next one begins; 0: all in one file
    cost: str = ""  # a cost.json to compare steps with; empty: none
    memory: int = 0  # bytes that it may take, its weights included; 0: all that are free
    engines: int = 1  # that share the processor, this one included

    @property
    def daemon(self) -> bool:
        """Whether the process can be a daemon, which may have no children: vLLM has workers."""
        return self.executor == TORCH


@dataclass(frozen=True, slots=True)
class Progress:
    """How far loading the model has come."""

    text: str  # for people, while the model is loaded


@dataclass(frozen=True, slots=True)
class Welcome:
    """The engine is ready; what the server must know of it."""

    model: str  # its name
    folder: str  # where its files lie
    tokenizer: Tokenizer
    dtype: str
    device: str
    capacity: int  # tokens that one request may hold
    num_blocks: int
    block_size: int
    context: int  # tokens
    eos: frozenset[int]
    memory: str  # what it is used for, in lines for people
    load: Load  # before the first step
    traits: Traits = Traits()  # the executor's
    card: ModelCard = ModelCard()  # what the checkpoint says of its vectors
    work: DeviceWork = DeviceWork()  # what a step asks of the device
    load_ns: int = 0  # nanoseconds from the start of its process until it was ready
    cost_warnings: tuple[str, ...] = ()  # reasons to doubt the cost file's prices


@dataclass(frozen=True, slots=True)
class Failed:
    """The last message: the engine could not be made, or has failed."""

    error: HeadwayError


class Step(NamedTuple):
    """What one step brought, or one poll without a step."""

    events: list[Event]
    steps: list[StepRow]
    requests: list[RequestRow]
    load: Load
    taken: int  # requests taken in so far, which `load` has seen
    journal: str = ""  # why it has stopped; empty: it has not, or there is none
    changes: Sequence[SizeChange] = ()  # of sizes that follow the load
    stages: Sequence[RequestStages] = ()  # where the time of `requests` went

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (columns(self.events), *self[1:])


def columns(events: Sequence[Event]) -> Columns:
    """The events, field by field. A field that is empty in all of them is an empty tuple.

    A step of decoding brings an event for each sequence, and all have but an id and tokens. Pickled
    one by one, sixty-four of them took five times as long.
    """
    if not events:
        return ()
    ids, *others = zip(*events, strict=True)
    return ids, *[field if any(field) else () for field in others]


def events_of(columns: Columns) -> list[Event]:
    """The events that `columns` was given."""
    filled = [column or repeat(empty) for column, empty in zip(columns, EMPTY, strict=False)]
    # As Event._make does it, without a call of Python's for each.
    return list(map(tuple.__new__, repeat(Event), zip(*filled, strict=False)))


def _unpickled(columns: Columns, *others: Any) -> Step:
    return Step(events_of(columns), *others)
