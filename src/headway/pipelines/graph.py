"""The graph of a pipeline: Stage, each, and the `>>` that chains them (Chain)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway.errors import SettingError


class Chainable:
    """An operand of `>>`. A plain function can be the other operand."""

    def __rshift__(self, other: Any) -> "Chain":
        return Chain((*as_chain(self).parts, *as_chain(other).parts))

    def __rrshift__(self, other: Any) -> "Chain":
        return Chain((*as_chain(other).parts, *as_chain(self).parts))


@dataclass(frozen=True, eq=False)
class Stage(Chainable):
    """One step of every workflow: what computes it, and how."""

    work: Any  # a function of a list, a Batcher, a batched function, an LLM; or SimulatedStage
    name: str = ""  # empty: the function's
    lane: str = ""  # of the batcher; empty: its first
    max_waiting: int = 1_000  # items, with those that workflows on their way will bring
    settings: Mapping[str, Any] = field(default_factory=dict)  # of a new Batcher, or of the LLM


@dataclass(frozen=True, eq=False)
class Each(Chainable):
    """A chain that runs once for each element of the result before it (`each`)."""

    chain: "Chain"


@dataclass(frozen=True, eq=False)
class Chain(Chainable):
    """Stages one after another."""

    parts: tuple[Stage | Each, ...]


def stage(
    work: Any, *, name: str = "", lane: str = "", max_waiting: int = 1_000, **settings: Any
) -> Stage:
    """A stage of a pipeline.

    work: a function of a list, as `headway.batch` takes it; a Batcher or a batched function, which
    may have other callers; or an LLM, whose items are prompts. lane: of the batcher.
    max_waiting: items that may wait here before new workflows are refused.
    settings: for a function, fields of headway.batching.BatchSettings; for an LLM, `options`.

    Raises SettingError.
    """
    if isinstance(work, Chain | Each | Stage):
        raise SettingError("a stage is made of a function, a Batcher or an LLM, not of a stage")
    if max_waiting < 1:
        raise SettingError(f"max_waiting must be 1 or more, not {max_waiting}")
    return Stage(work, name, lane, max_waiting, settings)


def each(*parts: Any) -> Each:
    """A part of a pipeline that runs for each element of a list by itself.

    The result before it must be a list. The result after it is the list of the elements' results,
    in their order. Elements of all workflows share the stages' batches.
    """
    if not parts:
        raise SettingError("each() needs a stage")
    chain = as_chain(parts[0])
    for part in parts[1:]:
        chain = Chain((*chain.parts, *as_chain(part).parts))
    return Each(chain)


def as_chain(part: Any) -> Chain:
    """A part of a pipeline as a chain. Raises SettingError."""
    if isinstance(part, Chain):
        return part
    if isinstance(part, Stage | Each):
        return Chain((part,))
    if not callable(part) and not isinstance(part, Chainable):
        raise SettingError(f"a {type(part).__name__} is no stage of a pipeline")
    return Chain((Stage(part),))


@dataclass(frozen=True, slots=True)
class Call:
    """The item goes through a stage."""

    stage: int


@dataclass(frozen=True, slots=True)
class Split:
    """The item is a list: its elements go on as items of their own."""

    join: int  # place of the Join, where they meet again


@dataclass(frozen=True, slots=True)
class Join:
    """The elements of a list meet, and go on as a list."""


Operation = Call | Split | Join


class Program(NamedTuple):
    """A graph as a sequence of operations. An item's place in it is an index."""

    stages: tuple[Stage, ...]  # in the order in which a workflow passes them
    operations: tuple[Operation, ...]
    graph: Chain

    @classmethod
    def of(cls, graph: Any) -> "Program":
        """The program of a chain. Raises SettingError."""
        stages, operations, chain = list[Stage](), list[Operation](), as_chain(graph)
        _write(chain, stages, operations)
        names = [stage.name for stage in stages if stage.name]
        if len(set(names)) < len(names):
            raise SettingError(f"stages need distinct names: {names}")
        return cls(tuple(stages), tuple(operations), chain)

    def lists_after(self, stage: int) -> int:
        """How many nested lists are split right after this stage."""
        at = first = self.operations.index(Call(stage)) + 1
        while at < len(self.operations) and isinstance(self.operations[at], Split):
            at += 1
        return at - first


def _write(chain: Chain, stages: list[Stage], operations: list[Operation]) -> None:
    for part in chain.parts:
        if isinstance(part, Stage):
            operations.append(Call(len(stages)))
            stages.append(part)
            continue
        at = len(operations)
        operations.append(Split(0))
        _write(part.chain, stages, operations)
        operations[at] = Split(len(operations))
        operations.append(Join())
