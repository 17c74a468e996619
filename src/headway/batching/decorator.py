"""@headway.batch: a function of a list becomes one that many callers call with one item each."""

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, overload

from headway.batching.batcher import Batcher
from headway.batching.calling import Function, is_stream
from headway.batching.settings import made_settings
from headway.errors import SettingError
from headway.pipelines.graph import Chainable


class BatchedFunction(Chainable):
    """A function whose items are batched. Its Batcher begins with the first call.

    Called with an item, it returns the result; of a coroutine function, a coroutine; of a
    generator, an iterator of pieces. Keywords are those of Batcher.submit. On a method, each
    instance has a Batcher of its own, which keeps the instance alive until `close`. `function` and
    `settings` are what it was made of.
    """

    def __init__(self, function: Function, settings: dict[str, Any]) -> None:
        if settings.get("processes"):
            raise SettingError(
                "processes cannot find a decorated function by its name: use "
                "Batcher(function, processes=...)"
            )
        made_settings(settings).for_engine()  # what is wrong is said where it is written
        functools.update_wrapper(self, function)
        self.function, self.settings = function, settings
        self._lock = threading.Lock()
        self._batcher: Batcher | None = None
        self._key = f"_batched_{id(self)}"  # of an instance's own, in its __dict__
        self._is_async = inspect.iscoroutinefunction(function)
        self._is_async_stream = inspect.isasyncgenfunction(function)

    @property
    def batcher(self) -> Batcher:
        """The batcher behind it."""
        with self._lock:
            if self._batcher is None:
                self._batcher = Batcher(self.function, **self.settings)
            return self._batcher

    def __call__(self, item: Any, **keywords: Any) -> Any:
        batcher = self.batcher
        if self._is_async:
            return batcher.acall(item, **keywords)
        if self._is_async_stream:
            return batcher.astream(item, **keywords)
        if is_stream(self.function):
            return batcher.stream(item, **keywords)
        return batcher.call(item, **keywords)

    def __get__(self, instance: Any, owner: type | None = None) -> "BatchedFunction":
        if instance is None:
            return self
        method = self.function.__get__(instance, owner)
        with self._lock:
            bound: BatchedFunction | None = instance.__dict__.get(self._key)
            if bound is None or bound.function != method:  # a copy has that of its original
                bound = instance.__dict__[self._key] = BatchedFunction(method, self.settings)
            return bound

    def close(self) -> None:
        """End its batcher. The next call begins another one."""
        with self._lock:
            batcher, self._batcher = self._batcher, None
        if batcher:
            batcher.close()


@overload
def batch(function: Function, /) -> BatchedFunction: ...
@overload
def batch(**settings: Any) -> Callable[[Function], BatchedFunction]: ...
def batch(function: Function | None = None, /, **settings: Any) -> Any:
    """Decorate a function of a list. settings: fields of BatchSettings. Raises SettingError."""
    if function is not None:
        return BatchedFunction(function, settings)
    return functools.partial(BatchedFunction, settings=settings)
