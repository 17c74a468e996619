"""The function as a worker of mosec, in mosec's own environment."""

import os
import time

from mosec import Server, Worker

SIZE, BASE, EACH = 32, 0.005, 0.0002  # items; seconds
WAIT = int(os.environ["WAIT_MS"])  # it takes whole milliseconds


class Work(Worker):  # type: ignore[misc]
    def forward(self, data: list[int]) -> list[int]:
        time.sleep(BASE + EACH * len(data))
        return data


if __name__ == "__main__":
    server = Server()
    server.append_worker(Work, num=1, max_batch_size=SIZE, max_wait_time=WAIT)
    server.run()
