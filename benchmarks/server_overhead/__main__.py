"""How much of the engine's speed reaches 64 clients that stream over HTTP?

In turns, on the same model with the same settings: `LLM.generate` in this process, and 64
connections that stream server-sent events from `headway serve`, whose engine is a process of its
own. Each turn has prompts of its own, the same for both; answers are greedy and of one exact
length. Tokens per second run from the first request to the last stream's end, with encoding and
decoding of text on both sides. `streaming_vs_offline` is the server's rate over offline's, by pair.

`front_us_per_token` is processor time of the server's front (HTTP, JSON, text, the pipe to the
engine), user and system together, over generated tokens. `client_core` is the share of a core that
the load's client takes in its own process: on a machine with few cores it is taken from the
server. The engine's own processor time stands beside offline's.

    python -m benchmarks.server_overhead --part half-b   random weights of 0.5B: has the aim
    python -m benchmarks.server_overhead --part tiny     the embedded model: the front's cost shows

The aim, 0.9 of offline's speed, is for the model of 0.5B; the embedded model's steps are so
short that they leave two cores little to spare, and its result is only reported.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from benchmarks.report import Figure, finish
from benchmarks.server_overhead.served import Served, serving
from benchmarks.server_overhead.stage import SCALES, TINY, config, prompts, random_checkpoint
from headway import LLM, Options
from headway.server.config.config import ServerConfig
from headway.server.config.engine_options import engine_options

CLIENTS, AIM = 64, 0.9


class Turns:
    """Samples, turn by turn, of both."""

    def __init__(self, llm: LLM, server: Served, tokens: int) -> None:
        self.llm, self.server, self.tokens = llm, server, tokens
        self.samples: dict[str, list[float]] = {}

    def _note(self, **figures: float) -> None:
        for name, value in figures.items():
            self.samples.setdefault(name, []).append(value)

    def offline(self, asked: Sequence[str]) -> None:
        options = Options(max_tokens=self.tokens, ignore_eos=True)
        began, spent = perf_counter(), process_time()
        answers = self.llm.generate(asked, options, errors="raise", progress=False)
        seconds, spent = perf_counter() - began, process_time() - spent
        tokens = sum(len(answer.tokens) for answer in answers)
        assert tokens == self.tokens * len(asked)
        self._note(offline_tok_s=tokens / seconds, offline_us=1e6 * spent / tokens)

    def streamed(self, asked: Sequence[str]) -> None:
        bodies = [
            {
                "prompt": prompt,
                "max_tokens": self.tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            for prompt in asked
        ]
        front, engine = self.server.front_cpu, self.server.engine_cpu
        heard = self.server.answer(bodies)
        front, engine = self.server.front_cpu - front, self.server.engine_cpu - engine
        tokens, seconds = heard["tokens"], heard["seconds"]
        assert tokens == self.tokens * len(asked)
        self._note(
            server_tok_s=tokens / seconds,
            front_us=1e6 * front / tokens,
            engine_us=1e6 * engine / tokens,
            client_us=1e6 * heard["cpu"] / tokens,
            client_core=heard["cpu"] / seconds,
            tokens_per_chunk=tokens / heard["chunks"],
        )

    def figures(self, aim: float | None) -> list[Figure]:
        some = self.samples
        pairs = zip(some["server_tok_s"], some["offline_tok_s"], strict=True)
        return [
            Figure("streaming_vs_offline", [a / b for a, b in pairs], unit="x", least=aim),
            Figure("offline_tok_s", some["offline_tok_s"], unit="tokens/s"),
            Figure("server_tok_s", some["server_tok_s"], unit="tokens/s"),
            Figure("front_us_per_token", some["front_us"], unit="us"),
            Figure("engine_us_per_token", some["engine_us"], unit="us"),
            Figure("offline_us_per_token", some["offline_us"], unit="us"),
            Figure("client_us_per_token", some["client_us"], unit="us"),
            Figure("client_core", some["client_core"], unit="of a core"),
            Figure("tokens_per_chunk", some["tokens_per_chunk"], unit="tokens"),
            Figure("front_memory_mb", [self.server.front_memory], unit="MB"),
        ]


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--part", choices=list(SCALES), default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--turns", type=int, default=4, help="of each, in pairs")
    parser.add_argument("--threads", type=int, default=0, help="of the engine; 0: torch's choice")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    scale, aim = SCALES[asked.part], AIM if asked.part == "half-b" else None
    with TemporaryDirectory() as made:
        folder = random_checkpoint(Path(made)) if asked.part == "half-b" else TINY
        said = config(folder, CLIENTS, scale.tokens + 512, asked.threads)
        settings = engine_options(ServerConfig.model_validate(said))
        if asked.threads:
            from headway.executor.torch.threads import set_thread_count

            set_thread_count(asked.threads)
        same = {name: settings[name] for name in ("policies", "slots", "context", "block_size")}
        with serving(said, Path(made)) as server, LLM(folder, **same) as llm:
            turns = Turns(llm, server, scale.tokens)
            some = prompts(CLIENTS, asked.seed)
            words = next(some)
            turns.offline(words)
            turns.streamed(words)
            turns.samples.clear()  # that was to warm up
            for _ in range(asked.turns):
                words = next(some)
                turns.offline(words)
                turns.streamed(words)
            figures = turns.figures(aim)
    print(f"{scale.model}, {CLIENTS} clients, {scale.tokens} tokens each")
    return finish(f"server_overhead_{asked.part}", __doc__ or "", asked.seed, figures)


if __name__ == "__main__":
    sys.exit(main())
