"""Forwarding: the part of an executor that a wrapper passes on unchanged."""

from collections.abc import Callable

from headway.core.grammar import Grammar
from headway.engine import Executor


class Forwarding(Executor):
    """An executor that wraps another one. A subclass defines what happens to steps."""

    def __init__(self, executor: Executor) -> None:
        self.executor, self.traits = executor, executor.traits

    def compile(self, grammar: Grammar) -> None:
        self.executor.compile(grammar)

    def prepare(self, tokens: int, sampled: int, seconds: float) -> None:
        self.executor.prepare(tokens, sampled, seconds)

    def is_back(self, ticket: int) -> bool:
        return self.executor.is_back(ticket)

    def on_back(self, tell: Callable[[], object]) -> None:
        self.executor.on_back(tell)

    def on_failure(self, tell: Callable[[str], object]) -> None:
        self.executor.on_failure(tell)

    def close(self) -> None:
        self.executor.close()
