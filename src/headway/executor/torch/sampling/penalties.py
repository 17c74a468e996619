"""History: a sequence's own tokens, and the penalties and bans that follow from them.

Formulas: repetition as in CTRL (Keskar et al. 2019) and transformers; presence and frequency as in
OpenAI's API; bad words as in transformers' NoBadWords.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from headway.core.batch import Begun
from headway.executor.torch.memory.transfer import send, send_one

EXCLUDED = -float("inf")


class History:
    """One sequence's known tokens. It grows with the rows, which hold the accepted tokens.

    known   |<------ prompt ------>|<- answer ->|
    seen    the tokens of both; counts: of the answer only. After a preemption the sequence starts
            again with all its tokens, so a preemption changes nothing here.
    """

    def __init__(self, begun: Begun, vocab: int, device: torch.device) -> None:
        self.sampling, self.prompt = begun.sampling, begun.prompt
        self.known: list[int] = []
        self.seen = torch.zeros(vocab, dtype=torch.bool, device=device)
        self.counts = torch.zeros(vocab, device=device)
        bias = [pair for pair in begun.sampling.logit_bias if pair[0] < vocab]
        self._bias_at, self._bias = send(
            device,
            np.array([token for token, _ in bias], dtype=np.int64),
            np.array([each for _, each in bias], dtype=np.float32),
        )
        self._never, self._after = _split_bad_words(begun.sampling.bad_words, vocab)
        self.extend(0, begun.tokens)

    def extend(self, start: int, tokens: Sequence[int]) -> None:
        """Add a row's tokens, skipping those that are already known."""
        new = [t for t in tokens[len(self.known) - start :] if 0 <= t < len(self.seen)]
        if not new:
            return
        at = send_one(self.counts.device, np.array(new, dtype=np.int64))
        self.seen.index_fill_(0, at, True)
        if len(at := at[max(0, self.prompt - len(self.known)) :]):
            self.counts.index_add_(0, at, torch.ones_like(at, dtype=torch.float32))
        self.known += new

    def push(self, logits: Tensor) -> None:
        """Apply logit bias and bad words to one row of logits [vocab], in place."""
        if len(self._bias):
            logits.index_add_(0, self._bias_at, self._bias)
        if banned := self._banned():
            at = send_one(logits.device, np.array(banned, dtype=np.int64))
            logits.index_fill_(0, at, EXCLUDED)

    def _banned(self) -> list[int]:
        """The tokens that would complete a bad word now."""
        after = self._after.get(self.known[-1], ()) if self.known else ()
        return self._never + [
            last for others, last in after if self.known[-len(others) :] == others
        ]


def _split_bad_words(
    words: Sequence[tuple[int, ...]], vocab: int
) -> tuple[list[int], dict[int, list[tuple[list[int], int]]]]:
    """The bad words of one token; and the longer ones, keyed by their last token but one, each as
    (all tokens but the last, the last token)."""
    never: list[int] = []
    after: dict[int, list[tuple[list[int], int]]] = {}
    for *others, last in words:
        if last < vocab and others:
            after.setdefault(others[-1], []).append((others, last))
        elif last < vocab:
            never.append(last)
    return never, after


def penalized(logits: Tensor, histories: Mapping[int, History]) -> Tensor:
    """A copy of logits [n, vocab] with penalties, logit bias and bad words applied to each row
    that has a history. Without histories, the logits themselves."""
    if not histories:
        return logits
    mine, logits = list(histories.values()), logits.clone()
    asked = [each.sampling for each in mine]
    at, harder, frequency, presence = send(
        logits.device,
        np.array(list(histories), dtype=np.int64),
        *(
            np.array([[getattr(each, f"{name}_penalty")] for each in asked], dtype=np.float32)
            for name in ("repetition", "frequency", "presence")
        ),
    )
    own, counts = logits[at], torch.stack([each.counts for each in mine])
    repeated = torch.where(own > 0, own / harder, own * harder)
    own = torch.where(torch.stack([each.seen for each in mine]), repeated, own)
    own -= frequency * counts + presence * (counts > 0)
    for row, history in zip(own, mine, strict=True):
        history.push(row)
    logits[at] = own
    return logits
