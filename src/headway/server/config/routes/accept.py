"""`accept` of a cascade: when an answer is good enough, so that no larger model is asked."""

from typing import Annotated, Any

from pydantic import Field

from headway.errors import SettingError
from headway.routing.judges import follows_schema, matches
from headway.server.config.sections.models import FUNCTION
from headway.server.config.sections.section import Number, Section, SettingAtError, placed_at

KINDS = ("confidence", "regex", "json_schema", "function", "agree")
Confidence = Annotated[float, Field(le=0, allow_inf_nan=False), Number]


class AcceptSettings(Section):
    """One of its ways to judge an answer."""

    confidence: Annotated[
        Confidence | None,
        Field(description="The least mean log-probability of the answer's tokens, 0 or below."),
    ] = None
    regex: Annotated[
        str, Field(description="A regular expression that the whole text matches.")
    ] = ""
    json_schema: Annotated[
        dict[str, Any] | None,
        Field(description="A JSON schema that the text follows. Needs the package jsonschema."),
    ] = None
    function: Annotated[
        str,
        Field(
            description="module:name of a function of the answer's text that says so, perhaps a "
            "coroutine function. It runs in the server's process."
        ),
    ] = ""
    agree: Annotated[
        int,
        Number,
        Field(ge=0, le=16, description="This many answers of the same model are equal."),
    ] = 0
    temperature: Annotated[
        float,
        Number,
        Field(
            ge=0,
            le=2,
            description="With `agree`: temperature of all answers but the first. Default: the "
            "request's own.",
        ),
    ] = 0

    def check(self) -> None:
        given = [name for name in KINDS if name in self.model_fields_set]
        if len(given) != 1:
            said = f"not {' and '.join(given)}" if given else "and none is given"
            raise SettingError(f"is one of {', '.join(KINDS)}, {said}")
        if given == ["agree"] and self.agree < 2:
            raise SettingAtError(("agree",), f"{self.agree} answers cannot agree: 2 or more can")
        if "temperature" in self.model_fields_set and given != ["agree"]:
            raise SettingAtError(("temperature",), "is for `agree`")
        if given == ["function"]:
            check_function("function", self.function)
        with placed_at(given[0]):
            if given == ["regex"]:
                matches(self.regex)
            if self.json_schema is not None:
                follows_schema(self.json_schema)


def check_function(field: str, name: str) -> None:
    """Raise SettingAtError unless the name is module:name. field: the setting that holds it."""
    if not FUNCTION.fullmatch(name):
        raise SettingAtError((field,), f"is module:name, not {name!r}")
