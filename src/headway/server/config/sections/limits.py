"""How much one call may ask of the server: sizes, counts and times."""

from typing import Annotated

from pydantic import Field

from headway.core.grammar import MOST_TEXT
from headway.server.config.sections.durations import SECOND, Limit, written
from headway.server.config.sections.section import Count, Section, SettingAtError

MOST_COMPILE = 60 * SECOND  # whoever waits for so long has been forgotten by then


class LimitSettings(Section):
    """What is more than this is refused with 400 or 413 before anything is queued."""

    body_bytes: Annotated[Count, Field(description="Of a request's body; more is 413.")] = 8 << 20
    bodies_bytes: Annotated[
        Count,
        Field(
            description="Of all bodies that are being read. Beyond it the one that has held most "
            "for longest is refused with 429."
        ),
    ] = 64 << 20
    text_bytes: Annotated[
        Count,
        Field(
            description="Of one text that is tokenized, in UTF-8, or 16 for each token of the "
            "context where that is more; a token to be turned into text counts as 4. More is 400."
        ),
    ] = 2 << 20
    call_time: Annotated[
        Limit,
        Field(description="For a call that is in no lane, such as /tokenize and /metrics; 408."),
    ] = 30 * SECOND
    prompts: Annotated[Count, Field(description="Of one /v1/completions call.")] = 128
    n: Annotated[Count, Field(description="Choices of one prompt.")] = 16
    stops: Annotated[Count, Field(description="Stop strings and stop token ids, each.")] = 16
    stop_chars: Annotated[
        Count, Field(description="Characters of a stop string or a bad word.")
    ] = 1_024
    logprobs: Annotated[
        Count,
        Field(description="Log-probabilities of one call: a scored token's and its rivals'."),
    ] = 500_000
    messages: Annotated[Count, Field(description="Of one chat.")] = 2_048
    schema_bytes: Annotated[
        Count,
        Field(le=MOST_TEXT, description="Of a JSON schema, regex, grammar or list of choices."),
    ] = MOST_TEXT
    grammar_compile: Annotated[
        Limit,
        Field(description="Time to compile a grammar, 1m at most; what takes longer is refused."),
    ] = SECOND // 2

    def check(self) -> None:
        if self.bodies_bytes < self.body_bytes:
            said = f"{self.bodies_bytes} is less than one body may have: {self.body_bytes}"
            raise SettingAtError(("bodies_bytes",), said)
        if self.grammar_compile > MOST_COMPILE:
            most, said = written(MOST_COMPILE), written(self.grammar_compile)
            raise SettingAtError(("grammar_compile",), f"may be {most} at most, not {said}")
