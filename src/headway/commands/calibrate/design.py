"""The designed batches that a cost model is fitted to. They vary its terms independently.

Live traffic alone is not enough: there, long contexts come with many rows, and prompts come with
decodes. These are batches that an engine could submit, but in other proportions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp
from random import Random

LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192)  # tokens of a prompt alone
CHUNKS = (16, 64, 256, 512)  # tokens of a prompt beside decodes
TOGETHER = (2, 4, 8, 16, 32, 64)  # prompts in one step
TILES = (1, 2, 3, 4)  # numbers of tiles to fill
SPREAD = 0.9  # standard deviation of the log of mixed contexts: about that of recorded prompts
SHORT = 24  # tokens of context


@dataclass(frozen=True, slots=True)
class Design:
    """The shape of one step. Every row has its own blocks."""

    decodes: tuple[int, ...] = ()  # tokens in the KV of each decoding row
    prompts: tuple[tuple[int, int], ...] = ()  # (first position, number of tokens) of each
    unfinished: bool = False  # the prompts continue in later steps, so nothing is sampled
    width: int = 0  # tokens that every row is padded to; 0: no padding
    held: int = 0  # finished slots that a padded group still computes
    exact: bool = False  # the design is never varied

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens whose KV each row holds after the step."""
        return (*(held + 1 for held in self.decodes), *(sum(prompt) for prompt in self.prompts))

    @property
    def tokens(self) -> int:
        """Computed tokens, including padding and held slots."""
        own = len(self.decodes) + sum(length for _, length in self.prompts)
        return max(own, self.width * (len(self.decodes) + len(self.prompts) + self.held))

    def fits(self, slots: int, context: int, blocks: int, block_size: int) -> bool:
        """Whether an engine with these limits could submit this step. context: tokens of a row."""
        rows = len(self.decodes) + len(self.prompts) + self.held
        needed = sum(-(-length // block_size) for length in self.lengths)
        return rows <= slots and max(self.lengths) <= context and needed <= blocks

    def varied(self, share: float) -> "Design":
        """This design with its prompts cut to a share of their length, at least 2 tokens.

        Prompts in traffic are not all powers of two.
        """
        if self.exact:
            return self

        def cut(length: int) -> int:
            return min(length, max(2, round(length * share)))

        prompts = tuple((start, cut(length)) for start, length in self.prompts)
        return replace(self, prompts=prompts, width=cut(self.width) if prompts else self.width)


def designs(
    slots: int, context: int, blocks: int, block_size: int, seed: int, tile: int = 1
) -> list[Design]:
    """All designs of up to `slots` rows that fit into the blocks, each once, the smallest first.

    tile: tokens that a matrix product computes at once.
    """
    random = Random(f"{seed} designs")
    candidates = [
        *_decodes(slots, context, random),
        *_prompts(context),
        *_together(slots, context),
        *_chunks(slots, context, random),
        *_groups(slots, context, random),
        *_edges(tile),
    ]

    fitting = [
        each for each in dict.fromkeys(candidates) if each.fits(slots, context, blocks, block_size)
    ]
    return sorted(fitting, key=lambda design: design.tokens)


def counts(slots: int) -> list[int]:
    """The numbers of rows to try: 1, 2, 3, 4, 6, 8, 12, 16 and so on, and all slots."""
    near = {1, slots}
    power = 2
    while power <= slots:
        near |= {power, min(slots, power * 3 // 2)}
        power *= 2
    return sorted(near)


def _mixed(count: int, context: int, random: Random) -> tuple[int, ...]:
    """Contexts in tokens as in traffic: most short, a few long."""
    middle = context / 12
    drawn = (round(middle * exp(random.gauss(0, SPREAD))) for _ in range(count))
    return tuple(min(max(SHORT, length), context - 1) for length in drawn)


def _decodes(slots: int, context: int, random: Random) -> Iterator[Design]:
    for count in counts(slots):
        for length in (SHORT, context // 8, context * 3 // 4):
            yield Design((length,) * count)
        yield Design(_mixed(count, context, random))
        yield Design(_mixed(count, context, random))


def _prompts(context: int) -> Iterator[Design]:
    for length in LENGTHS:
        yield Design(prompts=((0, length),))
    for length in CHUNKS:
        for start in (context // 8, context // 2):
            yield Design(prompts=((start, length),))
            yield Design(prompts=((start + 1, length - 1),), unfinished=True)


def _together(slots: int, context: int) -> Iterator[Design]:
    for count in TOGETHER:
        for length in (SHORT, max(1, context // 24), max(1, context // 8)):
            if count <= slots:
                yield Design(prompts=((0, length),) * count)
        yield Design(prompts=((context // 16, 16),) * min(count, slots))


def _chunks(slots: int, context: int, random: Random) -> Iterator[Design]:
    for length in CHUNKS:
        for count in sorted({1, slots // 4, slots // 2, slots - 1} - {0}):
            decodes = _mixed(count, context, random)
            yield Design(decodes, ((0, length),))
            yield Design(decodes, ((context // 8, length),), unfinished=True)
        beside = _mixed(slots // 2, context, random)
        yield Design(beside, ((0, length // 2), (0, length - length // 2)))


def _edges(tile: int) -> Iterator[Design]:
    """Steps that exactly fill some tiles, and steps with one token more."""
    for tokens in (tile * count for count in TILES if tile > 1):
        for more in (0, 1):
            yield Design(prompts=((0, tokens + more),), unfinished=True, exact=True)


def _groups(slots: int, context: int, random: Random) -> Iterator[Design]:
    """Padded batches of an exclusive group, whose padding and held slots are computed."""
    for width in (max(2, context // 32), max(2, context // 12)):
        lengths = [random.randint(max(2, width // 4), width) for _ in range(slots)]
        yield Design(prompts=tuple((0, length) for length in lengths), width=width)
        if few := tuple((0, length) for length in lengths[: slots // 2]):
            yield Design(prompts=few, width=width, held=slots - len(few))
    for count in sorted({slots // 4, slots // 2} - {0}):
        yield Design(_mixed(count, context, random), width=1, held=slots - count)
