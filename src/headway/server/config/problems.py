"""Describe pydantic's errors, one line each: the value's source, its path, and what is wrong."""

from collections.abc import Callable

from pydantic import ValidationError

from headway.server.config.sections.section import Location, SettingAtError

SECRET = "keys"  # the section whose values are never shown: one may be a key
MARK = "["  # marks parts that pydantic adds to a location: a mapping's key, a union's form
SUBJECTS = ("Input ", "String ")  # how pydantic's sentences begin
PLAINER = {
    "model_type": "Input should be a mapping of names to values",
    "dict_type": "Input should be a mapping of names to values",
    "tuple_type": "Input should be a list",
    "int_type": "Input should be a whole number",
    "int_parsing": "Input should be a whole number",
    "int_from_float": "Input should be a whole number",
    "float_type": "Input should be a number",
    "float_parsing": "Input should be a number",
    "bool_type": "Input should be true or false",
    "bool_parsing": "Input should be true or false",
    "string_type": "Input should be a text",
}


def describe_problems(error: ValidationError, origin: Callable[[Location], str]) -> list[str]:
    """One line per error, in pydantic's order. origin: the source of the value at a location."""
    found = []
    for each in error.errors(include_url=False):
        where = tuple(part for part in each["loc"] if MARK not in str(part))
        message = PLAINER.get(each["type"], each["msg"].removeprefix("Value error, "))
        if isinstance(raised := each.get("ctx", {}).get("error"), SettingAtError):
            where += raised.where
        shows_input = isinstance(each["input"], str | int | float) and where[:1] != (SECRET,)
        if shows_input and message.startswith(SUBJECTS):
            message += f", not {each['input']!r}"
        found.append(f"{origin(where)}: {_sentence(dotted_path(where), message)}")
    return found


def _sentence(subject: str, message: str) -> str:
    """pydantic's message, with the setting's path in place of its `Input`."""
    for each in SUBJECTS:
        message = message.removeprefix(each)
    joint = " " if message.startswith(("should ", "is ")) else ": "
    return f"{subject}{joint}{message}"


def dotted_path(where: Location) -> str:
    """A location as text: lanes.voice.ttft, keys[0].name."""
    path = ""
    for each in where:
        path += f"[{each}]" if isinstance(each, int) else f".{each}" if path else each
    return path
