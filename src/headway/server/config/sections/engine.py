"""`engine`: how many sequences run, under which strategy, and what is recorded."""

from typing import Annotated, Any, Literal

from pydantic import Field

from headway.errors import SettingError
from headway.executor.load import BLOCK_SIZES, TORCH, check_executor
from headway.server.config.sections.section import Count, Number, Section
from headway.server.config.sections.strategy import Strategy

MOST_SLOTS = 4_096  # each slot holds a row of every step's tables
MOST_THREADS = 1_024  # more than cores help nothing, and 100,000 end the process


class EngineSettings(Section):
    """The `engine` section."""

    slots: Annotated[
        Count,
        Field(le=MOST_SLOTS, description="Sequences that may run at once; 4096 at most."),
    ] = 32
    context: Annotated[
        int,
        Field(
            ge=0,
            description="Tokens of one request, prompt and answer together; 0: the model's limit.",
        ),
        Number,
    ] = 0
    block_size: Annotated[
        int,
        Field(ge=0, description="Tokens per block of KV memory; 0: 16, or 32 with vllm."),
        Number,
    ] = 0
    executor: Annotated[
        Literal["torch", "vllm"],
        Field(description="What computes: torch, headway's own executor, or vllm, vLLM's workers."),
    ] = "torch"
    vllm: Annotated[
        dict[str, Any],
        Field(
            description="Arguments of vLLM's engine, by its own names, such as "
            "tensor_parallel_size. Default: none."
        ),
    ] = {}
    strategy: Annotated[
        Strategy,
        Field(
            description="Batching strategy: a name, as in `headway compare`, or its parts. "
            "Default: budgets where lanes have budgets and `cost` is set, else priority."
        ),
    ] = None
    step_tokens: Annotated[
        int,
        Field(
            ge=0,
            description="Tokens that one step may compute; 0: slots + chunk, slots + 2048 with "
            "chunk slack, or 2048 with whole prompts.",
        ),
        Number,
    ] = 0
    threads: Annotated[
        int,
        Field(
            ge=0,
            le=MOST_THREADS,
            description="Threads that compute, 1024 at most; 0: one for a model of less than 64 "
            "MiB of weights, otherwise as many as torch chooses.",
        ),
        Number,
    ] = 0
    restart: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="How often in a row an engine that died or hangs is restarted; then "
            "the server ends with status 1. Ten minutes of service end the row. "
            "0: the first fault ends the server.",
        ),
        Number,
    ] = 3
    journal: Annotated[
        str,
        Field(
            description="File that records all the engine takes in and does, with prompts "
            "and answers, for `headway replay`. Each start makes a new file "
            "beside this name. Default: no journal."
        ),
    ] = ""
    journal_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Size at which the journal goes on in another file; 0: never.",
        ),
        Number,
    ] = 256 << 20
    cost: Annotated[
        str,
        Field(
            description="A cost file of `headway calibrate` for this model and dtype. "
            "Strategies by budgets predict times with it; step times are compared with it, and the "
            "drift is shown. Default: none."
        ),
    ] = ""

    @property
    def tokens_per_block(self) -> int:
        """The block size in force."""
        return self.block_size or BLOCK_SIZES[self.executor]

    def check(self) -> None:
        check_executor(self.executor, self.vllm)
        if self.threads and self.executor != TORCH:
            raise SettingError("threads are vLLM's own: see VLLM_CPU_OMP_THREADS_BIND")
        if 0 < self.step_tokens < self.slots:
            raise SettingError(
                f"step_tokens {self.step_tokens} is less than slots {self.slots}: in a full batch "
                "some sequences would never get their next token"
            )
        chunk = (self.strategy and self.strategy.join == "continuous" and self.strategy.chunk) or 0
        if 0 < self.step_tokens < chunk:
            raise SettingError(
                f"chunk {chunk} is more than step_tokens {self.step_tokens}, which a step may "
                "compute at most"
            )


class OwnEngineSettings(EngineSettings):
    """The `engine` mapping of an entry of `models`: what it sets differs from the section."""

    def check(self) -> None:
        """Check nothing: the missing values come from the section `engine`."""

    def over(self, section: EngineSettings) -> EngineSettings:
        """The settings in force: these if they are given, else the section's. Raises SettingError
        if they contradict each other."""
        if not self.model_fields_set:
            return section
        made = section.model_copy(
            update={name: getattr(self, name) for name in self.model_fields_set}
        )
        made.check()
        return made
