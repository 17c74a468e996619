"""How much do weights in 8 bits, and numbers in 16, cost in quality?

The embedded model reads windows of the shipped text, which it was not trained on, in float32,
bfloat16 and int8 (with float32 and bfloat16 beside it). Of each: its perplexity over that in
float32, the share of positions at which the likeliest token is that of float32, and the share of
greedy answers' tokens before the first one that differs.

Models of random weights and three shapes then have outliers planted: a few channels of each norm
are multiplied by 1, 30 and 100, as single channels of large models are. The error is that of the
logits, root mean square over root mean square, against float32.

The aim is a perplexity in int8 of at most 1.01 times float32's.

    python -m benchmarks.quality         two minutes
"""

import math
import sys
from collections.abc import Sequence
from statistics import fmean

import torch
from torch import Tensor

from benchmarks.report import Figure, finish, parser
from headway import LLM, Options
from headway.core.batch import Batch, Begun, Row, Want
from headway.core.sampling import Sampling
from headway.executor.torch.config.model_config import parse_config
from headway.executor.torch.layers.norm import RmsNorm
from headway.executor.torch.load import load_random
from headway.executor.torch.memory.memory_plan import Limits
from headway.runs.corpus import read_corpus, split_text

SEED, WINDOWS, WINDOW = 0, 64, 384  # tokens of a window
ANSWERED, PROMPT, ANSWER = 48, 32, 64  # answers, and their tokens
EXACT = "float32"
OTHERS = ("bfloat16", "float32+int8", "bfloat16+int8")
MOST = 1.01
FACTORS, CHANNELS = (1, 30, 100), 4  # that outliers are larger, and in how many channels
# hidden, intermediate, heads, KV heads, layers
SHAPES = ((256, 704, 4, 2, 4), (512, 1_376, 8, 2, 6), (896, 4_864, 14, 2, 6))
VOCAB, LENGTH = 4_096, 48


def main() -> int:
    parser(__doc__).parse_args()
    figures = [*_of_the_embedded_model(), *_of_random_models()]
    return finish("quality", __doc__ or "", SEED, figures)


def _of_the_embedded_model() -> list[Figure]:
    exact = _Read.of(EXACT)
    figures = [Figure("perplexity_float32", [exact.perplexity])]
    for dtype in OTHERS:
        found, name = _Read.of(dtype), dtype.replace("+", "_")
        over = found.perplexity / exact.perplexity
        aim = MOST if "int8" in dtype else None
        figures += [
            Figure(f"perplexity_{name}_over_float32", [over], most=aim),
            Figure(
                f"likeliest_{name}", [_agreement(found.likeliest, exact.likeliest)], unit="share"
            ),
            Figure(f"greedy_{name}", _begins_alike(found.answers, exact.answers), unit="share"),
        ]
    return figures


class _Read:
    """What the embedded model says in one precision."""

    def __init__(self, perplexity: float, likeliest: list[int], answers: list[Sequence[int]]):
        self.perplexity, self.likeliest, self.answers = perplexity, likeliest, answers

    @classmethod
    def of(cls, dtype: str) -> "_Read":
        with LLM(dtype=dtype, device="cpu") as llm:
            tokens = [
                each for piece in split_text(read_corpus()) for each in llm.tokenizer.encode(piece)
            ]
            step = len(tokens) // WINDOWS
            windows = [tokens[at * step : at * step + WINDOW] for at in range(WINDOWS)]
            read = llm.generate(windows, Options(max_tokens=0, prompt_logprobs=1), progress=False)
            prompts = [each[:PROMPT] for each in windows[:ANSWERED]]
            options = Options(max_tokens=ANSWER, min_tokens=ANSWER)
            answers = llm.generate(prompts, options, progress=False)
        places = [place for each in read for place in each.prompt_logprobs]
        mean = fmean(place.sampled for place in places)
        likeliest = [place.top[0][0] for place in places]
        return cls(math.exp(-mean), likeliest, [each.tokens for each in answers])


def _agreement(some: Sequence[int], others: Sequence[int]) -> float:
    return fmean(one == other for one, other in zip(some, others, strict=True))


def _begins_alike(found: list[Sequence[int]], exact: list[Sequence[int]]) -> list[float]:
    """For each answer, the share of its tokens before the first one that differs."""
    shares = []
    for some, others in zip(found, exact, strict=True):
        same = [one == other for one, other in zip(some, others, strict=True)]
        shares.append((same.index(False) if False in same else len(same)) / len(same))
    return [fmean(shares)]


def _of_random_models() -> list[Figure]:
    figures = []
    for factor in FACTORS:
        errors: dict[str, list[float]] = {dtype: [] for dtype in OTHERS}
        for shape in SHAPES:
            exact = _logits(shape, EXACT, factor)
            for dtype in OTHERS:
                off = _logits(shape, dtype, factor) - exact
                errors[dtype].append((off.square().mean() / exact.square().mean()).sqrt().item())
        for dtype, samples in errors.items():
            name = f"logits_{dtype.replace('+', '_')}_outliers_{factor}"
            figures.append(Figure(name, samples, unit="rms / rms"))
    return figures


def _logits(shape: tuple[int, int, int, int, int], dtype: str, factor: int) -> Tensor:
    """Of the last token of a prompt, by a model with outliers."""
    hidden, intermediate, heads, kv_heads, layers = shape
    raw = {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }
    limits = Limits(sequences=4, context=256)
    executor = load_random(parse_config(raw, {}), limits, dtype, "cpu").executor
    stream = torch.Generator().manual_seed(SEED)
    for layer in executor.model.weights.layers:
        for norm in (layer.before_attention, layer.before_mlp):
            assert isinstance(norm, RmsNorm)
            norm.weight[torch.randperm(hidden, generator=stream)[:CHANNELS]] *= factor
    seen: list[Tensor] = []
    compute = executor.model.logits

    def kept(x: Tensor) -> Tensor:
        seen.append(compute(x))
        return seen[-1]

    executor.model.logits = kept  # type: ignore[method-assign]
    tokens = torch.randint(VOCAB, (LENGTH,), generator=stream).tolist()
    blocks = tuple(range(1, -(-LENGTH // executor.cache.block_size) + 1))
    row = Row(0, 0, tuple(tokens), blocks, Want.LAST)
    executor.collect(executor.submit(Batch(1, (row,), (Begun(0, LENGTH, Sampling(logprobs=1)),))))
    executor.close()
    return seen[0].double()


if __name__ == "__main__":
    sys.exit(main())
