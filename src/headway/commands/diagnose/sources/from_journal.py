"""Evidence from a journal: everything that the engine took in and did."""

from dataclasses import replace

from headway.commands.diagnose.evidence import Evidence
from headway.commands.replay.recording import Recording
from headway.commands.replay.rerun import Rerun, rerun_journal
from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.figures.warm_up import without_warm_up


def journal_evidence(recording: Recording, cost: StepCost) -> tuple[Evidence, Rerun]:
    """Rerun the journal. Returns the evidence from its rows, and the rerun for a what-if run.

    Requests that had not ended have rows as of the journal's end. cost: from a cost file; unknown:
    the recorded one is used, if there is one. Raises JournalError as `headway replay` does.
    """
    settings = recording.settings
    known = cost if cost.is_known else settings.cost
    rerun = rerun_journal(recording, known.gathering)
    ended = rerun.outcome
    with_open = replace(ended, requests=(*ended.requests, *rerun.open))
    outcome = without_warm_up(with_open, recording.warm_up)
    left_out = len(ended.steps) - len(outcome.steps)  # the first ones
    added = {
        command.request.id: (record.now - rerun.start, bool(command.request.sampling.grammar))
        for record in recording.records
        for command in record.commands
        if isinstance(command, Add)
    }
    return Evidence(
        source=f"{recording.name}: {len(outcome.requests)} requests, {len(outcome.steps)} steps",
        requests=outcome.requests,
        lanes={lane.name: lane for lane in settings.lanes},
        steps=outcome.steps,
        features=rerun.steps[left_out:],
        cost=known,
        policies=settings.policies,
        num_blocks=settings.num_blocks,
        block_size=settings.block_size,
        taken={id: at for id, (at, _) in added.items()},
        with_grammar=frozenset(id for id, (_, has_grammar) in added.items() if has_grammar),
    ), rerun
