"""@headway.batch: turn a function of a list into one that many callers call with one item each."""

import functools
import threading
from collections.abc import Callable
from typing import Any, overload

from headway.batching.batcher import Batcher
from headway.batching.calling import Function, is_async_stream, is_coroutine, is_stream
from headway.batching.settings import made_settings
from headway.errors import SettingError
from headway.pipelines.graph import Chainable


class BatchedFunction(Chainable):
    """A function whose items are batched. The first call starts its Batcher.

    A call with an item returns the result; for a coroutine function, a coroutine; for a generator,
    an iterator of pieces. It takes the keywords of Batcher.submit. For a method, each instance has
    its own Batcher, which keeps the instance alive until `close`. `function` and `settings` are
    the arguments it was made from.
    """

    def __init__(self, function: Function, settings: dict[str, Any]) -> None:
        if not callable(function):
            raise SettingError(
                f"{function!r} is no function: batch decorates one, and its settings have names"
            )
        if settings.get("processes"):
            raise SettingError(
                "processes cannot find a decorated function by its name: use "
                "Batcher(function, processes=...)"
            )
        made_settings(settings).for_engine()  # a wrong setting is reported where it is written
        functools.update_wrapper(self, function)
        self.function, self.settings = function, settings
        self._lock = threading.Lock()
        self._batcher: Batcher | None = None
        self._key = f"_batched_{id(self)}"  # of an instance's _Own, in its __dict__
        self._is_async = is_coroutine(function)
        self._is_async_stream = is_async_stream(function)

    @property
    def batcher(self) -> Batcher:
        """The function's Batcher, started if there is none in this process."""
        with self._lock:
            if self._batcher is None or not self._batcher.is_here:
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
        if instance is None or not hasattr(self.function, "__get__"):
            return self
        if not isinstance(getattr(instance, "__dict__", None), dict):
            raise SettingError(
                f"{self.function.__qualname__}: each instance keeps its batcher in its __dict__, "
                f"and a {type(instance).__name__} has none to write to"
            )
        method = self.function.__get__(instance, owner)
        with self._lock:
            own: _Own | None = instance.__dict__.get(self._key)
            bound = own.bound if own else None
            if bound is None or bound.function != method:  # a shallow copy has the original's
                bound = BatchedFunction(method, self.settings)
                instance.__dict__[self._key] = _Own(bound)
            return bound

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by the name, as a function is pickled; a method with its instance. The batcher
        stays here: a process that reads the pickle starts its own with the first call."""
        instance, name = getattr(self.function, "__self__", None), getattr(self, "__name__", "")
        if instance is None and name:
            return str(getattr(self, "__qualname__", name))
        if getattr(instance, name, None) is self:
            return getattr, (instance, name)
        return BatchedFunction, (self.function, self.settings)

    def check_thread(self) -> None:
        """As Batcher.check_thread. Starts no batcher."""
        if batcher := self._batcher:
            batcher.check_thread()

    def close(self) -> None:
        """Close the batcher. The next call starts another one."""
        with self._lock:
            batcher, self._batcher = self._batcher, None
        if batcher:
            batcher.close()


class _Own:
    """An instance's own BatchedFunction, in its __dict__. A deep copy of the instance, or a pickled
    one, has an empty one and makes its own BatchedFunction."""

    def __init__(self, bound: BatchedFunction | None = None) -> None:
        self.bound = bound

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _Own, ()


@overload
def batch(function: Function, /) -> BatchedFunction: ...
@overload
def batch(**settings: Any) -> Callable[[Function], BatchedFunction]: ...
def batch(function: Function | None = None, /, **settings: Any) -> Any:
    """Decorate a function of a list: each caller passes one item and gets its result, and items of
    many callers are called together (BatchedFunction).

    settings: fields of headway.batching.BatchSettings, such as size=32. Raises SettingError.
    """
    if function is not None:
        return BatchedFunction(function, settings)
    return functools.partial(BatchedFunction, settings=settings)
