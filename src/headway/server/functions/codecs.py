"""Bodies to items and results to bodies: JSON, msgpack, and numpy's own format."""

import io
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from headway.errors import SettingError, first_line
from headway.server.protocol.problem import wrong

JSON, MSGPACK, NPY = "application/json", "application/msgpack", "application/x-npy"
KINDS = frozenset({JSON, MSGPACK, NPY})


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
                # Not numpy.load, which also reads archives.
                return _numpy().lib.format.read_array(io.BytesIO(raw), allow_pickle=False)
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
        first = error.errors(include_url=False, include_context=False)[0]
        path = ".".join([*([at] if at else []), *map(str, first["loc"])])
        what = f"'{path}': {first['msg']}" if path else f"the item: {first['msg']}"
        raise wrong(what, path, "invalid_item") from None


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
    """msgpack-numpy's form of an array."""
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
        return value.model_dump()
    raise TypeError(f"a {type(value).__name__} has no form in msgpack")


def _array_of(found: dict[Any, Any]) -> Any:
    named = {each.decode() if isinstance(each, bytes) else each: found[each] for each in found}
    if named.get("nd") is not True:
        return found
    kind = _numpy().dtype(named["type"])
    if kind.hasobject:
        raise ValueError("arrays of objects are not read")
    found = _numpy().frombuffer(named["data"], kind).reshape(named["shape"])
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
