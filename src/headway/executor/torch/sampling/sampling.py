"""sample: from logits to tokens, for all rows of a step at once.

A token is drawn as the winner of a race: of all candidates the one with the largest
logit / temperature - log(noise), where the noise is exponential and a function of (seed,
position, token). That is an exact draw (the Gumbel-max trick). It was chosen over inverting
the cumulative distribution because batching changes logits in their last bits. That changes the
race only if two candidates finish within those bits, but it would move every later edge of a
cumulative sum. The race also needs no order, so near ties cannot swap places.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.batch import Logprob
from headway.executor.grammars.grammar import Matcher
from headway.executor.logprobs import LogprobColumns
from headway.executor.torch.sampling.masks import apply_grammars
from headway.executor.torch.sampling.noise import exponential_noise, noise_keys_tensor, rows_at_once
from headway.executor.torch.sampling.penalties import EXCLUDED, History, penalized

CANDIDATES = 1024  # looked at first; the whole vocabulary is sorted only where these are too few
CHUNK = 256  # columns that the first round of a search for the largest sums up in one


@dataclass(frozen=True, slots=True)
class SamplingColumns:
    """How each row's token is to be sampled: columns of length n, on the host."""

    temperature: NDArray[np.float64]  # 0: greedy
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float64]
    min_p: NDArray[np.float64]
    seeds: NDArray[np.int64]
    positions: NDArray[np.int64]  # of the sampled token in its sequence
    banned: Mapping[int, tuple[int, ...]]  # row -> tokens that cannot be sampled yet
    logprobs: NDArray[np.int64]  # -1: none; n: of the sampled token and the n most likely
    # Row -> what penalties, bias and bad words read.
    histories: Mapping[int, History] = field(default_factory=dict)
    matchers: Mapping[int, Matcher] = field(default_factory=dict)  # row -> its grammar

    @property
    def ban(self) -> bool:
        """Whether some row may have no token left to sample."""
        return bool(self.histories or self.matchers or self.banned)


def sample(logits: Tensor, draws: SamplingColumns) -> Tensor:
    """Pick one token per row: float32 logits [n, vocab] -> int64 [n]. Changes no logits.

    -1 where every token is banned.
    """
    logits = apply_grammars(penalized(logits, draws.histories), draws.matchers)
    if draws.banned:
        logits = logits.clone()
        for row, tokens in draws.banned.items():
            logits[row, [token for token in tokens if token < logits.shape[1]]] = EXCLUDED
    picked = row_argmax(logits)
    none = logits.gather(1, picked.unsqueeze(1)).squeeze(1) == EXCLUDED if draws.ban else None
    drawn = np.flatnonzero(draws.temperature)
    filtered = (draws.top_k > 0) | (draws.top_p < 1) | (draws.min_p > 0)
    for rows, pick in (
        (drawn[filtered[drawn]], _sample_filtered),
        (drawn[~filtered[drawn]], _sample_unfiltered),
    ):
        if len(rows):
            at = torch.from_numpy(rows).to(logits.device)
            picked[at] = pick(logits[at], draws, rows)
    return picked if none is None else picked.masked_fill_(none, -1)


def row_argmax(values: Tensor) -> Tensor:
    """The index of the largest of each row, of equals the first: [n, width] -> int64 [n].

    In two rounds, because torch's argmax compares one by one on a CPU and its amax does not:
    32 rows of 151,936 took a tenth of the time.
    """
    width = values.shape[1]
    if width < 4 * CHUNK:
        return values.argmax(dim=-1)
    # The last chunk may overlap the one before it; what they share is found in the first.
    begins = torch.arange(0, width, CHUNK, device=values.device).clamp_max_(width - CHUNK)
    whole = width // CHUNK
    tops = values[:, : whole * CHUNK].view(-1, whole, CHUNK).amax(dim=-1)
    if whole < len(begins):
        tops = torch.cat((tops, values[:, -CHUNK:].amax(dim=-1, keepdim=True)), dim=1)
    begin = begins[tops.argmax(dim=-1)].unsqueeze(1)
    inside = values.gather(1, begin + torch.arange(CHUNK, device=values.device))
    return begin.squeeze(1) + inside.argmax(dim=-1)


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Shift each row's largest logit to 0 against overflow, and divide by temperature [n]."""
    return (logits - logits.amax(dim=-1, keepdim=True)) / temperature.unsqueeze(1)


def filter_candidates(
    scaled: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor
) -> tuple[Tensor, Tensor]:
    """Apply top_k, top_p and min_p in this order, each to what the one before has left.

    scaled [n, vocab]; the others [n]. Returns the candidates' values and ids, the likeliest
    first: [n, c] each, -inf where a filter has taken one out. The first always stays.
    """
    vocab = scaled.shape[1]
    width = min(vocab, max(CANDIDATES, int(top_k.max())))
    while True:
        values, ids = scaled.topk(width, dim=-1)
        # The distribution that top_p and min_p see: of the k that are left, or of all.
        whole = scaled.logsumexp(dim=-1, keepdim=True)
        rank = torch.arange(width, device=scaled.device)
        limited = (top_k > 0).unsqueeze(1)
        values = values.masked_fill(limited & (rank >= top_k.unsqueeze(1)), EXCLUDED)
        left = torch.where(limited, values.logsumexp(dim=-1, keepdim=True), whole)
        share = (values - left).exp()
        before = share.cumsum(dim=-1) - share
        keep = (before < top_p.unsqueeze(1)) | (top_p == 1).unsqueeze(1)
        keep &= share >= min_p.unsqueeze(1) * share[:, :1]
        keep[:, 0] = True
        # More could be left beyond the last one looked at, unless a filter has ended before it.
        if width == vocab or not bool((keep[:, -1:] & ~limited).any()):
            return values.masked_fill(~keep, EXCLUDED), ids
        width = vocab


def _sample_filtered(logits: Tensor, draws: SamplingColumns, rows: NDArray[np.int64]) -> Tensor:
    column = _DeviceColumns(rows, logits.device)
    scaled = apply_temperature(logits, column(draws.temperature))
    top_k = torch.from_numpy(draws.top_k[rows]).to(logits.device)
    values, ids = filter_candidates(scaled, top_k, column(draws.top_p), column(draws.min_p))
    keyed = noise_keys_tensor(draws.seeds[rows], draws.positions[rows], logits.device)
    won = (values - exponential_noise(keyed, ids.int()).log_()).argmax(dim=-1, keepdim=True)
    return ids.gather(1, won).squeeze(1)


def _sample_unfiltered(logits: Tensor, draws: SamplingColumns, rows: NDArray[np.int64]) -> Tensor:
    """Without a filter every token is a candidate: some rows at a time, to stay in the cache."""
    scaled = apply_temperature(logits, _DeviceColumns(rows, logits.device)(draws.temperature))
    keyed = noise_keys_tensor(draws.seeds[rows], draws.positions[rows], logits.device)
    ids = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
    few = rows_at_once(logits.shape[1])
    won = [
        row_argmax(some - exponential_noise(key, ids).log_())
        for some, key in zip(torch.split(scaled, few), torch.split(keyed, few), strict=True)
    ]
    return torch.cat(won)


class _DeviceColumns:
    """Moves some rows of a host column to the device, as float32."""

    def __init__(self, rows: NDArray[np.int64], device: torch.device) -> None:
        self.rows, self.device = rows, device

    def __call__(self, column: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(column[self.rows]).to(self.device, torch.float32)


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Log-probabilities of some of the sampled rows, still on the device."""

    rows: tuple[int, ...]  # of the n that were sampled
    counts: tuple[int, ...]  # how many of the most likely each row asked for
    drawn: Tensor  # [len(rows)]
    top: Tensor  # [len(rows), most asked for], the likeliest first
    ids: Tensor

    def to_logprobs(self) -> dict[int, Logprob]:
        """Plain values by row."""
        top = zip(self.ids.tolist(), self.top.tolist(), strict=True)
        lists = [tuple(zip(ids, values, strict=True)) for ids, values in top]
        return {
            row: Logprob(drawn, pairs[:count])
            for row, count, drawn, pairs in zip(
                self.rows, self.counts, self.drawn.tolist(), lists, strict=True
            )
        }


def to_logprob_columns(parts: Iterable[RowLogprobs]) -> LogprobColumns:
    """A prompt's log-probabilities as columns; each position has as many of the most likely."""
    whole = LogprobColumns()
    for part in parts:
        drawn, top = part.drawn.double().cpu().numpy(), part.top.double().cpu().numpy()
        ids = part.ids.int().cpu().numpy()
        whole.extend(LogprobColumns(drawn.tobytes(), ids.tobytes(), top.tobytes(), top.shape[1]))
    return whole


def token_logprobs(logits: Tensor, picked: Tensor, wanted: NDArray[np.int64]) -> RowLogprobs:
    """Natural logarithms of the raw distribution: before bans, temperature and filters.

    logits [n, vocab] float32, picked [n], asked [n] as in SamplingColumns.logprobs.
    """
    rows = np.flatnonzero(wanted >= 0)
    at = torch.from_numpy(rows).to(logits.device)
    logs = logits[at].log_softmax(dim=-1)
    counts = wanted[rows].tolist()
    top, ids = logs.topk(min(max(counts), logs.shape[1]), dim=-1)
    drawn = logs.gather(1, picked[at].unsqueeze(1)).squeeze(1)
    return RowLogprobs(tuple(rows.tolist()), tuple(counts), drawn, top, ids)
