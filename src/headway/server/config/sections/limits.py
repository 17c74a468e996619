"""`server.limits`: how much one call may ask for."""

from typing import Annotated

from pydantic import Field

from headway.core.grammar import MOST_TEXT
from headway.server.config.durations import SECOND, Limit, format_duration
from headway.server.config.sections.section import Count, Number, Section, SettingAtError

MOST_COMPILE = 60 * SECOND  # clients do not wait longer


class LimitSettings(Section):
    """A call beyond one of these is refused before it is queued, usually with 400."""

    body_bytes: Annotated[
        Count, Field(description="Size of one request's body; a larger one gets 413.")
    ] = 8 << 20
    bodies_bytes: Annotated[
        Count,
        Field(
            description="Size of all bodies together that are being read. Beyond it, the "
            "body that has held most for longest is refused with 429. Later calls that wait to "
            "be stored may hold as much again."
        ),
    ] = 64 << 20
    text_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Size of one text to tokenize, in UTF-8 bytes; a larger one gets 400. A "
            "token to detokenize counts as 4. 0: 2 MiB, or 16 bytes per token of the context if "
            "that is more.",
        ),
        Number,
    ] = 0
    call_time: Annotated[
        Limit,
        Field(
            description="Time for a call of a function, or one that is in no lane, such as "
            "/tokenize or /metrics, until its answer begins; then it gets 408."
        ),
    ] = 30 * SECOND
    prompts: Annotated[Count, Field(description="Prompts of one /v1/completions call.")] = 128
    inputs: Annotated[
        Count, Field(description="Texts of one call of /v1/embeddings, rerank, score or classify.")
    ] = 2_048
    n: Annotated[Count, Field(description="Choices per prompt.")] = 16
    stops: Annotated[
        Count, Field(description="Stop strings of one call, and as many stop token ids.")
    ] = 16
    stop_chars: Annotated[
        Count, Field(description="Characters of a stop string or of a bad word.")
    ] = 1_024
    logprobs: Annotated[
        Count,
        Field(
            description="Log-probabilities of one call: of each scored token and of its "
            "alternatives."
        ),
    ] = 500_000
    messages: Annotated[Count, Field(description="Messages of one chat.")] = 2_048
    schema_bytes: Annotated[
        Count,
        Field(
            le=MOST_TEXT, description="Size of a JSON schema, regex, grammar or list of choices."
        ),
    ] = MOST_TEXT
    grammar_compile: Annotated[
        Limit,
        Field(
            description="Time to compile a grammar, 1m at most; one that takes longer is refused."
        ),
    ] = SECOND // 2

    def check(self) -> None:
        if self.bodies_bytes < self.body_bytes:
            text = f"{self.bodies_bytes} is less than body_bytes, {self.body_bytes}"
            raise SettingAtError(("bodies_bytes",), text)
        if self.grammar_compile > MOST_COMPILE:
            most, text = format_duration(MOST_COMPILE), format_duration(self.grammar_compile)
            raise SettingAtError(("grammar_compile",), f"may be {most} at most, not {text}")
