"""Bodies to items and results to bodies: JSON, msgpack, and numpy's own format."""

import io
from collections.abc import Sequence
from math import prod
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json, to_jsonable_python

from headway.errors import SettingError, first_line
from headway.server.protocol.problem import Problem, wrong

JSON, MSGPACK, NPY = "application/json", "application/msgpack", "application/x-npy"
KINDS = frozenset({JSON, MSGPACK, NPY})
LONGEST_HEADER = 1_024  # bytes of an array's header in numpy's format
LONGEST_TYPE = 32  # characters of an array's type, as in "<f4"
MOST_DIMENSIONS = 64  # numpy has no more
# An array with a length of 0 has no items, whatever its other lengths say. So they are bounded: the
# lists that its JSON has, and the items that it would have with lengths of 1 for those of 0.
MOST_LISTS, MOST_EMPTY = 1_024, 1 << 24


def kind_of(header: str, otherwise: str) -> str:
    """The first of our kinds that a Content-Type or Accept header names; else `otherwise`."""
    for part in header.split(","):
        if (kind := part.partition(";")[0].strip().lower()) in KINDS:
            return kind
    return otherwise


def decode(raw: bytes | bytearray, kind: str) -> Any:
    """The value of a body. Raises Problem."""
    try:
        match kind:
            case "application/msgpack":
                return _msgpack().unpackb(bytes(raw), object_hook=_array_of, strict_map_key=False)
            case "application/x-npy":
                return _npy(raw)
            case _:
                return from_json(raw)
    except SettingError as error:
        raise wrong(str(error), code="not_supported") from error
    except Exception as error:  # msgpack and numpy raise many kinds
        raise wrong(f"the body is not {kind}: {first_line(error)}", code="invalid_body") from error


def checked(value: Any, adapter: TypeAdapter[Any], arrays: bool, at: str = "") -> Any:
    """The value as an item. at: its place in the body. Raises Problem."""
    if arrays:
        return _as_array(value, at)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        try:  # strict types take a date's text, or a tuple's list, as JSON alone
            return adapter.validate_json(to_json(value, inf_nan_mode="constants"))
        except ValidationError as of_json:
            raise _invalid(of_json, at) from None
        except ValueError:  # of msgpack: an array, or bytes that are no text
            raise _invalid(error, at) from None


def _invalid(error: ValidationError, at: str) -> Problem:
    first = error.errors(include_url=False, include_context=False)[0]
    path = ".".join([*([at] if at else []), *map(str, first["loc"])])
    what = f"'{path}': {first['msg']}" if path else f"the item: {first['msg']}"
    return wrong(what, path, "invalid_item")


def encode(value: Any, kind: str) -> bytes:
    """The body of a result. In JSON, arrays are lists, and NaN and infinities are null."""
    match kind:
        case "application/msgpack":
            packed: bytes = _msgpack().packb(value, default=_packed)
            return packed
        case "application/x-npy":
            out = io.BytesIO()
            _numpy().save(out, _numpy().asarray(value), allow_pickle=False)
            return out.getvalue()
        case _:
            return to_json(value, fallback=plain, inf_nan_mode="null")


def plain(value: Any) -> Any:
    """The JSON form of numpy's arrays and numbers. Raises TypeError for anything else."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _as_array(value: Any, at: str) -> Any:
    numpy = _numpy()
    try:
        found = numpy.asarray(value)
    except ValueError as error:
        raise wrong(f"the item is no array: {first_line(error)}", at, "invalid_item") from error
    if found.dtype.hasobject or found.dtype.kind in "US":
        raise wrong("the item is no array of numbers", at, "invalid_item")
    return found


def _packed(value: Any) -> Any:
    """What msgpack has no form for: an array in msgpack-numpy's form, anything else as in JSON."""
    if hasattr(value, "dtype") and not value.dtype.hasobject:
        array = _numpy().asarray(value)
        return {
            b"nd": True,
            b"type": array.dtype.str,
            b"kind": b"",
            b"shape": list(array.shape),
            b"data": array.tobytes(),
        }
    if hasattr(value, "model_dump"):
        return value.model_dump(by_alias=True)  # as in JSON
    return to_jsonable_python(value, fallback=_formless)  # a date, an enum, a set: as in JSON


def _formless(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no form in msgpack")


def _array_of(found: dict[Any, Any]) -> Any:
    named = {each.decode() if isinstance(each, bytes) else each: found[each] for each in found}
    if named.get("nd") is not True:
        return found
    kind = named["type"]
    if not isinstance(kind, str | bytes) or len(kind) > LONGEST_TYPE:
        raise ValueError(f"an array's type is a text of at most {LONGEST_TYPE} characters")
    return _array(named["data"], _numpy().dtype(kind), named["shape"])


def _npy(raw: bytes | bytearray) -> Any:
    """The array of a body in numpy's format. numpy.load would also read archives, and its
    read_array takes the memory that the header asks for."""
    form, file = _numpy().lib.format, io.BytesIO(raw)
    readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    version = form.read_magic(file)
    if version not in readers:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not read")
    shape, fortran, kind = readers[version](file, max_header_size=LONGEST_HEADER)
    count = prod(shape) if len(shape) <= MOST_DIMENSIONS else 0
    data = memoryview(raw)[file.tell() :]
    data = data[: count * kind.itemsize]  # what follows the array does not count
    if fortran:
        return _array(data, kind, shape[::-1]).transpose()
    return _array(data, kind, shape)


def _array(data: Any, kind: Any, shape: Sequence[int]) -> Any:
    """The array with these bytes. kind: its dtype. Raises ValueError."""
    if kind.hasobject:
        raise ValueError("arrays of objects are not read")
    if kind.names or kind.subdtype or not kind.itemsize:
        raise ValueError("the items of an array must be numbers, texts or times")
    if len(shape) > MOST_DIMENSIONS or any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"a shape is a list of at most {MOST_DIMENSIONS} lengths")
    if (needed := prod(shape) * kind.itemsize) != len(data):
        raise ValueError(f"an array of this shape has {needed} bytes, and the body {len(data)}")
    if 0 in shape:
        lists, lengths = prod(shape[: shape.index(0)]), prod([n for n in shape if n])
        if lists > MOST_LISTS or lengths > MOST_EMPTY:
            raise ValueError("the shape of an array without items is too large")
    found = _numpy().frombuffer(data, kind).reshape(shape)
    return found.copy()  # an array from a buffer is read-only


def _numpy() -> Any:
    try:
        import numpy
    except ModuleNotFoundError as missing:
        raise SettingError("arrays need numpy: pip install numpy") from missing
    return numpy


def _msgpack() -> Any:
    try:
        import msgpack  # type: ignore[import-untyped]
    except ModuleNotFoundError as missing:
        raise SettingError("msgpack bodies need msgpack: pip install msgpack") from missing
    return msgpack
