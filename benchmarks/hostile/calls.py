"""The most expensive calls that are complete and within every bound."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from time import sleep

from benchmarks.hostile.target import MIB, Target, head_of, send

PATIENCE = 90.0  # seconds for the scored call's answer, which no clock of the attack ends
LEAVE = 3.0  # seconds after which the clients of `texts` go, their answers unread
CALLS = 9
TEXT = 2 * MIB  # bytes that one text may have
# A special token and all characters for private use: the ones that once stood for special tokens.
PRIVATE = "<|pad|>" + "".join(map(chr, range(0xE000, 0xF900)))
# 128 prompts x 186 tokens x (its own and 20 rivals) = 499,968 of the 500,000 that one call may ask.
PROMPTS, TOKENS, RIVALS = 128, 186, 20


def filled(before: bytes, after: bytes) -> bytes:
    """A body whose text is just shorter than the limit for one text."""
    piece = PRIVATE.encode()
    return before + piece * (TEXT // len(piece)) + after


def texts(target: Target) -> None:
    """Eight /tokenize and a chat at once; their clients leave while they are worked on."""
    bodies = {
        b"/tokenize": filled(b'{"prompt": "', b'"}'),
        b"/v1/chat/completions": filled(b'{"messages": [{"role": "user", "content": "', b'"}]}'),
    }

    def call(path: bytes) -> Iterator[bytes]:
        yield head_of(path) + b"Content-Length: %d\r\n\r\n" % len(bodies[path])
        yield bodies[path]

    paths = [b"/tokenize"] * (CALLS - 1) + [b"/v1/chat/completions"]
    made = {sock: call(path) for path in paths if (sock := target.connect())}
    send(target, made)
    sleep(LEAVE)
    for each in made:
        each.close()


def scores(target: Target) -> None:
    """One call, whose answer is read to its end."""
    prompts = [[5 + (at + each) % 200 for each in range(TOKENS)] for at in range(PROMPTS)]
    asked = {"prompt": prompts, "echo": True, "logprobs": RIVALS, "max_tokens": 0}
    line = HTTPConnection(*target.place, timeout=PATIENCE)
    line.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
    answer = line.getresponse()
    while answer.read(1 << 16):
        pass
    line.close()
    assert answer.status == 200, answer.status
