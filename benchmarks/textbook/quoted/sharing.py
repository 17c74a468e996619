"""Prefix sharing: when it is worth three times the batch, and hit rates by use."""

from math import inf
from pathlib import Path

from benchmarks.textbook.memory import ANSWER, OWN, POOL, fitting, prompts
from benchmarks.textbook.part import ARITHMETIC, MEASURED, SIMULATED, Part, Table, percent
from benchmarks.textbook.runs import ACCELERATOR, MODEL, ROOM, SECOND, STEPS, counted
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.costing.datasheet import analytical_calibration, read_accelerator, read_shape
from headway.traffic.trace import PREFIX_TOKENS, Arrival, read_trace

BLOCK, QUOTED = 16, 3
RECORDED = Path("../shared/traces/mooncake-conversation.csv.gz")  # beside the project
DEVICES = (1, 8)  # whose KV memory is the cache
TURNS = 10
SYSTEM, QUESTION, ANSWERED = 512, 64, 192  # tokens of a constructed prompt, and of an answer
PASSAGES, PASSAGE = 6, 512  # of a retrieval prompt
STARTS, GROWS = 2_048, 512  # of an agent's prompts


def tripling() -> Part:
    """Which share of a request must be shared before three times as many fit."""
    figures: dict[str, float] = {}
    rows = list[list[str]]()
    for shared in (256, 512, 1024):
        need = (shared + OWN + ANSWER) // BLOCK
        law = need / (need - shared // BLOCK)
        ratio = fitting(shared) / (POOL // need)
        saved = prompts(shared, 16, sharing=False) / prompts(shared, 16, sharing=True)
        share = shared / (shared + OWN + ANSWER)
        figures |= {f"law_{shared}": law, f"fit_{shared}": ratio, f"less_{shared}": saved}
        figures[f"share_{shared}"] = share * 100
        cells = [percent(share), f"{law:.2f}", f"{ratio:.2f}", f"{saved:.2f}"]
        rows.append([f"{shared:,} shared + 128 + 128", *cells])
    figures["share_for_3"] = (1 - 1 / QUOTED) * 100
    head = ["tokens: prefix + own + answer", "shared", "fit, 1 / (1 - shared)", "the pool"]
    return Part(ARITHMETIC, [Table([*head, "16 prompts: times less computed"], rows)], figures)


def hits(prompts: list[Request]) -> tuple[float, float]:
    """Share of prompt tokens found in the cache when each request comes after the last has ended,
    and the share of requests that find any. The scheduler's own count, in blocks of 16."""
    rows = counted(prompts, Policies(Continuous(1), step_tokens=ROOM), cost=STEPS).requests
    cached = sum(row.cached for row in rows.values())
    total = sum(row.prompt for row in rows.values())
    return cached / total, sum(row.cached > 0 for row in rows.values()) / len(rows)


def own(number: int, tokens: int) -> tuple[int, ...]:
    return (1_000 + number,) * tokens


def chat() -> list[Request]:
    """Ten sessions of ten turns: each prompt is the session so far, and a new question."""
    asked = list[Request]()
    for turn in range(TURNS):
        for session in range(10):
            said = (1,) * SYSTEM
            for earlier in range(turn + 1):
                key = session * 100 + earlier
                said += own(key, QUESTION + (ANSWERED if earlier < turn else 0))
            number = turn * 10 + session
            asked.append(Request(f"chat-{number}", said, 1, number * SECOND))
    return asked


def retrieval() -> list[Request]:
    """One instruction, then six passages of a hundred in another order each time, a question."""
    asked = list[Request]()
    for number in range(100):
        said = (1,) * SYSTEM
        for place in range(PASSAGES):
            said += own((number * 37 + place * 11) % 100, PASSAGE)
        said += own(500 + number, QUESTION)
        asked.append(Request(f"retrieval-{number}", said, 1, number * SECOND))
    return asked


def agents() -> list[Request]:
    """Ten tasks of ten steps: each prompt is the last one and what a tool returned."""
    asked = list[Request]()
    for step in range(TURNS):
        for task in range(10):
            said = (1,) * SYSTEM + own(task, STARTS - SYSTEM)
            for earlier in range(step):
                said += own(1_000 + task * 100 + earlier, GROWS)
            number = step * 10 + task
            asked.append(Request(f"agent-{number}", said, 1, number * SECOND))
    return asked


def constructed() -> Part:
    """Prompts constructed in the form that each of the three uses has; none is recorded."""
    figures, rows = dict[str, float](), list[list[str]]()
    for key, words, requests in (
        ("chat", "chat sessions: 10 turns", chat()),
        ("retrieval", "retrieval: 6 passages of 512", retrieval()),
        ("agents", "agents: 10 steps", agents()),
    ):
        share, some = hits(requests)
        mean = sum(len(request.prompt) for request in requests) / len(requests)
        figures |= {key: share * 100, f"{key}_some": some * 100, f"{key}_prompt": mean}
        rows.append([words, f"{mean:,.0f}", percent(some), percent(share)])
    head = ["constructed, 100 requests each", "mean prompt", "requests with a hit"]
    return Part(SIMULATED, [Table([*head, "tokens found"], rows)], figures)


def found(arrivals: list[Arrival], room: float = inf) -> list[int]:
    """Tokens of each prompt that a cache holds: its leading blocks that were asked before.

    The last token is never matched, and the last block may be partial. room: blocks that are kept,
    the most recently asked ones; of one prompt, the last blocks are evicted first.
    """
    seen, cached = dict[int, None](), list[int]()  # in the order of eviction
    for arrival in arrivals:
        leading = 0
        for block in arrival.blocks:
            if block not in seen:
                break
            leading += 1
        for block in reversed(arrival.blocks):
            seen.pop(block, None)
            seen[block] = None
        while len(seen) > room:
            del seen[next(iter(seen))]
        cached.append(min(leading * PREFIX_TOKENS, arrival.prompt - 1))
    return cached


def room_of_a_device() -> int:
    """Tokens of KV memory beside the simulated model on its accelerator."""
    sheet = read_accelerator(ACCELERATOR)
    made = analytical_calibration(read_shape(MODEL), sheet, MODEL)
    return made.num_blocks * made.block_size


def recorded() -> Part:
    """Chat sessions as Mooncake recorded them. The trace does not ship with headway."""
    arrivals = read_trace(RECORDED)
    cached = found(arrivals)
    total = sum(arrival.prompt for arrival in arrivals)
    later = [
        (one, tokens)
        for one, tokens in zip(arrivals, cached, strict=True)
        if tokens > PREFIX_TOKENS
    ]
    share, room = sum(cached) / total, room_of_a_device()
    held = {
        devices: sum(found(arrivals, devices * room // PREFIX_TOKENS)) / total
        for devices in DEVICES
    }
    follow = sum(tokens for _, tokens in later) / sum(one.prompt for one, _ in later)
    figures = {
        "requests": len(arrivals),
        "prompt": total / len(arrivals),
        "found": share * 100,
        "less": 1 / (1 - share),
        "some": sum(tokens > 0 for tokens in cached) / len(arrivals) * 100,
        "later": len(later) / len(arrivals) * 100,
        "later_found": follow * 100,
        "room": room,
        **{f"held_{devices}": part * 100 for devices, part in held.items()},
    }
    rows = [
        [f"all {len(arrivals):,}", f"{total / len(arrivals):,.0f}", percent(share)],
        [
            f"the {len(later):,} that find more than a first block",
            f"{sum(one.prompt for one, _ in later) / len(later):,.0f}",
            percent(follow),
        ],
    ]
    for devices, part in held.items():
        words = f"all, a cache of {devices * room:,} tokens"
        rows.append([words, f"{total / len(arrivals):,.0f}", percent(part)])
    head = ["mooncake-conversation", "mean prompt", "tokens found"]
    return Part(MEASURED, [Table(head, rows)], figures)
