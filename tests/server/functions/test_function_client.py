"""The server's half of a function's process."""

import asyncio
import os
import signal

from headway.core.lane import Lane
from headway.server.functions.client import FunctionClient
from headway.server.functions.codecs import JSON
from headway.server.functions.messages import Ask, FunctionOptions, Wishes
from headway.server.protocol.problem import Problem
from tests.server.functions.served import MODULE

MOST = 1 << 20


def asked(text):
    return Ask(b'"%s"' % text, JSON, JSON, Wishes(""))


def test_a_process_that_hangs_is_sent_no_more_than_its_bound():
    options = FunctionOptions(f"{MODULE}:stop", "stop", (Lane(),))

    async def main():
        client = FunctionClient(options, None, MOST)
        await client.start()
        try:
            pid = int(await client.answer(asked(b"a")))
            stopped = asyncio.create_task(client.answer(asked(b"stop")))
            await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
            large = [
                asyncio.create_task(client.answer(asked(b"x" * (MOST // 8)))) for _ in range(40)
            ]
            refused, waiting = await asyncio.wait(large, return_when=asyncio.FIRST_EXCEPTION)
            os.kill(pid, signal.SIGCONT)
            assert {await each for each in (stopped, *waiting)} == {str(pid).encode()}
            assert await client.answer(asked(b"b")), "it takes calls again"
            return [each.exception() for each in refused]
        finally:
            await client.close()

    problems = asyncio.run(asyncio.wait_for(main(), 60))
    assert problems
    for problem in problems:
        assert isinstance(problem, Problem)
        assert (problem.status, problem.code) == (429, "too_much_text")
        assert "stop does not take its calls" in str(problem)


def test_a_call_as_large_as_the_bound_is_sent_to_a_process_that_takes_calls():
    async def main():
        client = FunctionClient(FunctionOptions(f"{MODULE}:stop", "stop", (Lane(),)), None, MOST)
        await client.start()
        try:
            return await client.answer(asked(b"x" * (MOST - 2)))
        finally:
            await client.close()

    assert asyncio.run(asyncio.wait_for(main(), 60)).isdigit()
