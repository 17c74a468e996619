"""sample: draws tokens from logits, for all rows of a step at once.

A token is drawn as the winner of a race: the candidate with the largest logit / temperature -
log(noise), where the noise is exponential and depends on (seed, position, token). This is an exact
draw (the Gumbel-max trick). Why not invert the cumulative distribution? Batching changes logits in
their last bits. That changes the race only if two candidates finish within those bits, but it
would move every later edge of a cumulative sum. The race also needs no order, so near ties cannot
swap places.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.batch import Logprob
from headway.core.sampling import MOST_LOGPROBS
from headway.executor.grammars.grammar import Matcher
from headway.executor.logprobs import LogprobColumns
from headway.executor.torch.memory.transfer import send, send_one
from headway.executor.torch.sampling.masks import apply_grammars
from headway.executor.torch.sampling.noise import exponential_noise, noise_keys, rows_at_once
from headway.executor.torch.sampling.penalties import EXCLUDED, History, penalized

CANDIDATES = 1024  # tried first; the whole vocabulary is sorted only if these are too few
CHUNK = 256  # columns that row_argmax reduces to one maximum in its first round


@dataclass(frozen=True, slots=True)
class SamplingColumns:
    """How to sample each row's token: columns of length n, on the host."""

    temperature: NDArray[np.float64]  # 0: greedy
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float64]
    min_p: NDArray[np.float64]
    seeds: NDArray[np.int64]
    positions: NDArray[np.int64]  # of the sampled token in its sequence
    banned: Mapping[int, tuple[int, ...]]  # row -> tokens that must not be sampled yet
    logprobs: NDArray[np.int64]  # -1: none; n: for the sampled token and the n likeliest
    # Row -> the history that penalties, bias and bad words read.
    histories: Mapping[int, History] = field(default_factory=dict)
    matchers: Mapping[int, Matcher] = field(default_factory=dict)  # row -> its grammar's state
    plain: bool = False  # no slot needs more than the likeliest token

    @property
    def ban(self) -> bool:
        """Whether some row may have no token left to sample."""
        return bool(self.histories or self.matchers or self.banned)

    @property
    def greedy(self) -> bool:
        """Whether every row takes the likeliest token and needs nothing else from the logits."""
        if self.plain:
            return True
        return not (self.ban or self.temperature.any() or (self.logprobs >= 0).any())


@cache
def plain_columns(rows: int) -> SamplingColumns:
    """Columns for rows that only need the likeliest token. Shared: do not write to them."""
    zeros, whole = np.zeros(rows), np.zeros(rows, dtype=np.int64)
    return SamplingColumns(
        *(zeros, whole, zeros + 1, zeros, whole, whole, {}, whole - 1), plain=True
    )


def sample(logits: Tensor, draws: SamplingColumns, waits: bool = True) -> Tensor:
    """Pick one token per row: float32 logits [n, vocab] -> int64 [n]. Leaves logits unchanged.

    Each token depends only on its row; -1 if every token is banned. waits: whether the host may
    wait for the device to learn if more candidates are needed. If not, the whole vocabulary is
    sorted for rows with top_p or min_p but no top_k.
    """
    logits = apply_grammars(penalized(logits, draws.histories), draws.matchers)
    if draws.banned:
        vocab = logits.shape[1]
        places = [
            row * vocab + token
            for row, tokens in draws.banned.items()
            for token in tokens
            if token < vocab
        ]
        at = send_one(logits.device, np.array(places, dtype=np.int64))
        logits = logits.flatten().index_fill(0, at, EXCLUDED).view(logits.shape)
    picked = row_argmax(logits)
    none = logits.gather(1, picked.unsqueeze(1)).squeeze(1) == EXCLUDED if draws.ban else None
    drawn = np.flatnonzero(draws.temperature)
    filtered = (draws.top_k > 0) | (draws.top_p < 1) | (draws.min_p > 0)
    for width, rows in _by_width(draws.top_k, drawn[filtered[drawn]], logits.shape[1]).items():
        at, found = _sample_filtered(logits, draws, rows, width, waits)
        picked.index_copy_(0, at, found)
    if len(rows := drawn[~filtered[drawn]]):
        at, found = _sample_unfiltered(logits, draws, rows)
        picked.index_copy_(0, at, found)
    return picked if none is None else picked.masked_fill_(none, -1)


def row_argmax(values: Tensor) -> Tensor:
    """The index of each row's largest value (the first of equals): [n, width] -> int64 [n].

    Works in two rounds, because on a CPU torch's argmax compares values one by one and its amax
    does not: 32 rows of 151,936 took a tenth of the time.
    """
    width = values.shape[1]
    if width < 4 * CHUNK:
        return values.argmax(dim=-1)
    # The last chunk may overlap the one before. A value in both is found in the earlier chunk.
    begins = torch.arange(0, width, CHUNK, device=values.device).clamp_max_(width - CHUNK)
    whole = width // CHUNK
    tops = values[:, : whole * CHUNK].view(-1, whole, CHUNK).amax(dim=-1)
    if whole < len(begins):
        tops = torch.cat((tops, values[:, -CHUNK:].amax(dim=-1, keepdim=True)), dim=1)
    begin = begins[tops.argmax(dim=-1)].unsqueeze(1)
    inside = values.gather(1, begin + torch.arange(CHUNK, device=values.device))
    return begin.squeeze(1) + inside.argmax(dim=-1)


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Shift each row's largest logit to 0, against overflow, and divide by temperature [n]."""
    return (logits - logits.amax(dim=-1, keepdim=True)) / temperature.unsqueeze(1)


def filter_candidates(
    scaled: Tensor, top_k: Tensor | None, top_p: Tensor, min_p: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """Apply top_k, then top_p and min_p to what top_k has left.

    scaled [n, vocab]; the filters [n] each; top_k None: no row has it. width: how many candidates
    to look at, at least the largest top_k. Returns the candidates' values and ids, likeliest first,
    [n, c] each; a filtered candidate has the value -inf. The likeliest always stays. Ties with a
    candidate that stays also stay, because torch's order of ties is arbitrary. If the last
    candidate stays, there may be more.
    """
    values, ids = scaled.topk(min(scaled.shape[1], width), dim=-1)
    if top_k is not None:  # top_p and min_p then use the distribution of the remaining tokens
        last = values.gather(1, top_k.clamp_max(values.shape[1]).unsqueeze(1) - 1)
        values = values.masked_fill(values < last, EXCLUDED)
        share = values.softmax(dim=-1)
    else:  # of all tokens; log_softmax, unlike logsumexp, has the same bits for one row and many
        share = scaled.log_softmax(dim=-1).gather(1, ids).exp_()
    before = share.cumsum(dim=-1) - share
    keep = (before < top_p.unsqueeze(1)) | (top_p == 1).unsqueeze(1)
    keep &= share >= min_p.unsqueeze(1) * share[:, :1]
    keep[:, 0] = True
    last = values.masked_fill(~keep, -EXCLUDED).amin(dim=-1, keepdim=True)
    return values.masked_fill(values < last, EXCLUDED), ids


def _by_width(
    top_k: NDArray[np.int64], rows: NDArray[np.int64], vocab: int
) -> dict[int, NDArray[np.int64]]:
    """Rows by how many candidates each tries first: top_k plus an eighth, for ties with the last,
    and at least CANDIDATES; 0: the row has no top_k."""
    most = np.minimum(top_k[rows], vocab)
    widths = np.where(most > 0, np.maximum(CANDIDATES, most + most // 8), 0)
    return {int(width): rows[widths == width] for width in np.unique(widths)}


def _sample_filtered(
    logits: Tensor, draws: SamplingColumns, rows: NDArray[np.int64], width: int, waits: bool
) -> tuple[Tensor, Tensor]:
    """Sample rows that have a filter: the rows on the device, and their tokens. width: the key of
    these rows in _by_width."""
    vocab = logits.shape[1]
    columns = [_single(each[rows]) for each in (draws.temperature, draws.top_p, draws.min_p)]
    keyed = noise_keys(draws.seeds[rows], draws.positions[rows])
    at, temperature, top_p, min_p, top_k, keys = send(
        logits.device, rows, *columns, draws.top_k[rows], keyed
    )
    scaled = apply_temperature(logits[at], temperature)
    limit = top_k if width else None
    few = min(vocab, width or (CANDIDATES if waits else vocab))
    values, ids = filter_candidates(scaled, limit, top_p, min_p, few)
    picked = _race(values, ids, keys)
    if waits and few < vocab and len(short := (values[:, -1] > EXCLUDED).nonzero().squeeze(1)):
        limit = limit if limit is None else limit[short]
        values, ids = filter_candidates(scaled[short], limit, top_p[short], min_p[short], vocab)
        picked[short] = _race(values, ids, keys[short])
    return at, picked


def _race(values: Tensor, ids: Tensor, keys: Tensor) -> Tensor:
    """The winning ids among the candidates that filter_candidates returns: [n]."""
    won = (values - exponential_noise(keys, ids.int()).log_()).argmax(dim=-1, keepdim=True)
    return ids.gather(1, won).squeeze(1)


def _sample_unfiltered(
    logits: Tensor, draws: SamplingColumns, rows: NDArray[np.int64]
) -> tuple[Tensor, Tensor]:
    """Sample rows without a filter: the rows on the device, and their tokens. Every token is a
    candidate. A CPU takes a few rows at a time, to stay in its cache."""
    keyed = noise_keys(draws.seeds[rows], draws.positions[rows])
    at, temperature, keys = send(logits.device, rows, _single(draws.temperature[rows]), keyed)
    scaled = apply_temperature(logits[at], temperature)
    ids = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
    few = rows_at_once(logits.shape[1]) if logits.device.type == "cpu" else len(rows)
    won = [
        row_argmax(some - exponential_noise(key, ids).log_())
        for some, key in zip(torch.split(scaled, few), torch.split(keys, few), strict=True)
    ]
    return at, torch.cat(won)


def _single(column: NDArray[np.float64]) -> NDArray[np.float32]:
    return column.astype(np.float32)


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Log-probabilities of some of the sampled rows."""

    rows: tuple[int, ...]  # indices among the n sampled rows
    counts: tuple[int, ...]  # how many likeliest tokens each row asked for
    drawn: Tensor  # [len(rows)] of the sampled tokens
    top: Tensor  # [len(rows), max(counts)] of the likeliest tokens, the likeliest first
    ids: Tensor  # the ids of those tokens

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.drawn, self.top, self.ids

    def on_host(self, tensors: Iterator[Tensor]) -> "RowLogprobs":
        """A copy that takes the next three tensors: its own ones, arrived on the host."""
        return replace(self, drawn=next(tensors), top=next(tensors), ids=next(tensors))

    def to_logprobs(self) -> dict[int, Logprob]:
        """The log-probabilities as plain values, by row."""
        top = zip(self.ids.tolist(), self.top.tolist(), strict=True)
        lists = [tuple(zip(ids, values, strict=True)) for ids, values in top]
        return {
            row: Logprob(drawn, pairs[:count])
            for row, count, drawn, pairs in zip(
                self.rows, self.counts, self.drawn.tolist(), lists, strict=True
            )
        }


def to_logprob_columns(parts: Iterable[RowLogprobs]) -> LogprobColumns:
    """A prompt's log-probabilities as columns. Every position has as many likeliest tokens."""
    whole = LogprobColumns()
    for part in parts:
        drawn, top = part.drawn.double().cpu().numpy(), part.top.double().cpu().numpy()
        ids = part.ids.int().cpu().numpy()
        whole.extend(LogprobColumns(drawn.tobytes(), ids.tobytes(), top.tobytes(), top.shape[1]))
    return whole


def token_logprobs(logits: Tensor, picked: Tensor, wanted: NDArray[np.int64]) -> RowLogprobs:
    """Natural log-probabilities of the raw distribution: before bans, temperature and filters.

    logits [n, vocab] float32, picked [n], wanted [n] as SamplingColumns.logprobs. If any is wanted,
    MOST_LOGPROBS are searched for: torch's choice among ties depends on how many it looks for.
    """
    rows = np.flatnonzero(wanted >= 0)
    at = send_one(logits.device, rows)
    mine = logits[at]
    logs = mine.log_softmax(dim=-1)
    drawn = logs.gather(1, picked[at].unsqueeze(1)).squeeze(1)
    counts = wanted[rows].tolist()
    ids = _likeliest(mine, MOST_LOGPROBS if max(counts) else 0)[:, : max(counts)]
    return RowLogprobs(tuple(rows.tolist()), tuple(counts), drawn, logs.gather(1, ids), ids)


def _likeliest(logits: Tensor, count: int) -> Tensor:
    """The ids of each row's likeliest tokens, the lowest id first among ties: [n, count]."""
    ids = logits.topk(min(count, logits.shape[1]), dim=-1).indices.sort(dim=-1).values
    order = logits.gather(1, ids).argsort(dim=-1, descending=True, stable=True)
    return ids.gather(1, order)
