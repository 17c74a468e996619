"""What pydantic found, in a line each: who said it, where, and what is wrong with it."""

from collections.abc import Callable

from pydantic import ValidationError

from headway.server.config.sections.section import SettingAtError, Where

SECRET = "keys"  # what was given there is never repeated
KEY = "[key]"  # pydantic's mark of a mapping's key that is wrong itself
SUBJECTS = ("Input ", "String ")  # that pydantic's sentences have
PLAINER = {
    "model_type": "Input should be a mapping of names to values",
    "dict_type": "Input should be a mapping of names to values",
    "tuple_type": "Input should be a list",
}


def problems(error: ValidationError, origin: Callable[[Where], str]) -> list[str]:
    """In the order of the fields."""
    found = []
    for each in error.errors(include_url=False):
        where = tuple(part for part in each["loc"] if part != KEY)
        message = PLAINER.get(each["type"], each["msg"].removeprefix("Value error, "))
        if isinstance(raised := each.get("ctx", {}).get("error"), SettingAtError):
            where += raised.where
        told = isinstance(each["input"], str | int | float) and where[:1] != (SECRET,)
        if told and message.startswith(SUBJECTS):
            message += f", not {each['input']!r}"
        found.append(f"{origin(where)}: {_sentence(path(where), message)}")
    return found


def _sentence(subject: str, message: str) -> str:
    """What pydantic calls `Input` has a name here."""
    for each in SUBJECTS:
        message = message.removeprefix(each)
    joint = " " if message.startswith(("should ", "is ")) else ": "
    return f"{subject}{joint}{message}"


def path(where: Where) -> str:
    """lanes.voice.ttft, keys[0].name"""
    said = ""
    for each in where:
        said += f"[{each}]" if isinstance(each, int) else f".{each}" if said else each
    return said
