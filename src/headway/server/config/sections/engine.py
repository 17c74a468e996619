"""The engine that runs the model: its limits, its batching strategy, its journal."""

from typing import Annotated

from pydantic import Field

from headway.errors import SettingError
from headway.server.config.sections.section import Count, Number, Section
from headway.server.config.sections.strategy import Strategy, StrategySettings

MOST_SLOTS = 4_096  # a row of each step's tables is held for each


class EngineSettings(Section):
    slots: Annotated[
        Count,
        Field(le=MOST_SLOTS, description="Sequences that run at once, at most; 4096 is the most."),
    ] = 32
    context: Annotated[
        int, Field(ge=0, description="Tokens that one request may hold; 0: the model's."), Number
    ] = 0
    block_size: Annotated[Count, Field(description="Tokens of a block of KV memory.")] = 16
    strategy: Annotated[
        Strategy, Field(description="A name, as in `headway compare`, or its parts.")
    ] = StrategySettings()
    step_tokens: Annotated[
        int,
        Field(ge=0, description="That a step computes at most; 0: slots + chunk, or 2048."),
        Number,
    ] = 0
    threads: Annotated[
        int,
        Field(
            ge=0,
            description="Of the engine's computing; 0: one for a model of less than 64 MiB of "
            "weights, else as torch chooses.",
        ),
        Number,
    ] = 0
    restart: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="Times in a row that an engine which has died or hangs is started again; "
            "after that the server ends with status 1. Ten minutes of service end the row. 0: the "
            "first fault ends the server.",
        ),
        Number,
    ] = 3
    journal: Annotated[
        str,
        Field(
            description="Keeps all that the engine takes in and does, prompts and answers too, "
            "for `headway replay`. Each start makes a new file beside this name. Default: none."
        ),
    ] = ""
    journal_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Of a file of the journal, which then goes on in the next; 0: of one.",
        ),
        Number,
    ] = 256 << 20
    cost: Annotated[
        str,
        Field(
            description="A cost.json of `headway calibrate` for this model and dtype: what steps "
            "take is held against it, and the drift shown. Default: none."
        ),
    ] = ""

    def check(self) -> None:
        if 0 < self.step_tokens < self.slots:
            raise SettingError(
                f"step_tokens {self.step_tokens} is less than slots {self.slots}: some of a full "
                "batch would never get their next token"
            )
