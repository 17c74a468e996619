"""StepBuilder: turns a batch into vLLM's SchedulerOutput."""

from dataclasses import dataclass, field
from typing import Any

from headway.core.batch import Batch, Row, Want
from headway.core.grammar import ALL_BANNED
from headway.executor.grammars.masks import allow_nothing, token_bitmasks, without_tokens
from headway.executor.vllm.sequences import Held, Sequences
from headway.executor.vllm.worker import StepNotes


@dataclass(slots=True)
class BuiltStep:
    """One step: what vLLM's workers get, and what is needed to read their results."""

    scheduled: Any  # vLLM's SchedulerOutput
    notes: StepNotes
    ids: dict[int, str]  # by row: the request that vLLM computes; refused rows have none
    sampled: dict[int, Held]  # by row that samples a token
    errors: dict[int, str] = field(default_factory=dict)  # by row


class StepBuilder:
    """Builds the steps of one engine, in order."""

    def __init__(self, sequences: Sequences, vocab: int, context: int) -> None:
        """context: the most tokens of a sequence in vLLM."""
        self._sequences, self._vocab, self._context = sequences, vocab, context

    def build(self, batch: Batch, finished: set[str]) -> BuiltStep:
        """Build a step. finished: requests that vLLM must drop before it reads the step."""
        from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput

        new, cached, shares = list[Any](), CachedRequestData.make_empty(), dict[str, int]()
        prompts, silent, scored = dict[str, int](), list[str](), dict[str, tuple[int, int]]()
        ids, sampled, errors = dict[int, str](), dict[int, Held](), dict[int, str]()
        for i, row in enumerate(batch.rows):
            held = self._sequences.of(row)
            if held is None:
                errors[i] = self._sequences.refusal(row)
                continue
            held.extend(row)
            ids[i], shares[held.id] = held.id, len(row.tokens)
            if held.sent:
                _continue(cached, held, row)
            else:
                new.append(_first(held, row))
                held.sent = True
                if held.generated > 0:
                    prompts[held.id] = held.begun.prompt
            if held.known == row.start + len(row.tokens):  # vLLM samples, wanted or not
                # A scheduler never asks for a token beyond the context. Calibration does: the row
                # is computed, but gives no token.
                if row.want & Want.LAST and held.known < self._context:
                    sampled[i] = held
                else:
                    silent.append(held.id)
            if row.want & Want.PROMPT:
                end = min(row.start + len(row.tokens), held.begun.prompt - 1)
                scored[held.id] = row.start, end
        scheduled = SchedulerOutput(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=cached,
            num_scheduled_tokens=shares,
            total_num_scheduled_tokens=sum(shares.values()),
            scheduled_spec_decode_tokens={},
            scheduled_encoder_inputs={},
            finished_req_ids=finished,
            free_encoder_mm_hashes=[],
        )
        grammar = self._grammar(sampled, errors)
        return BuiltStep(
            scheduled, StepNotes(prompts, tuple(silent), scored, grammar), ids, sampled, errors
        )

    def _grammar(self, sampled: dict[int, Held], errors: dict[int, str]) -> Any:
        """vLLM's GrammarOutput for the rows with a grammar; None if there are none. A row whose
        grammar has failed gets an error, and so does a row whose tokens are all banned."""
        from vllm.v1.core.sched.output import GrammarOutput

        rows = {}
        for i, held in sampled.items():
            if held.matcher and held.matcher.error:
                errors[i] = held.matcher.error
            elif held.matcher:
                rows[i] = held
            elif held.checked and held.bans_all(self._vocab):
                errors[i] = ALL_BANNED
        if not rows:
            return None
        matchers = tuple(held.matcher for held in rows.values() if held.matcher)
        bits = token_bitmasks(matchers, self._vocab)
        for at, (i, held) in enumerate(rows.items()):
            without_tokens(bits[at], held.banned(), self._vocab)
            if held.matcher and held.matcher.error:  # found while the mask was computed
                errors[i] = held.matcher.error
            elif allow_nothing(bits[at]):
                errors[i] = ALL_BANNED
        return GrammarOutput([held.id for held in rows.values()], bits)


def _first(held: Held, row: Row) -> Any:
    """A request's first row. vLLM wants all known tokens as a prompt; the worker later sets apart
    the generated ones (StepNotes.prompts)."""
    from vllm.v1.core.sched.output import NewRequestData

    return NewRequestData(
        req_id=held.id,
        prompt_token_ids=list(held.begun.tokens),
        mm_features=[],
        sampling_params=held.params,
        pooling_params=None,
        block_ids=(list(row.blocks),),
        num_computed_tokens=row.start,
        lora_request=held.lora,
    )


def _continue(cached: Any, held: Held, row: Row) -> None:
    """Add a later row: only the changes. vLLM already has the tokens that it sampled."""
    cached.req_ids.append(held.id)
    cached.new_block_ids.append((list(row.blocks),) if row.blocks else None)
    cached.num_computed_tokens.append(row.start)
    cached.num_output_tokens.append(max(0, held.generated))
