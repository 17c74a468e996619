"""The function as a worker of mosec, in mosec's own environment."""

import time

from mosec import Server, Worker

SIZE, BASE, EACH, WAIT = 32, 0.005, 0.0002, 5  # seconds; milliseconds


class Work(Worker):  # type: ignore[misc]
    def forward(self, data: list[int]) -> list[int]:
        time.sleep(BASE + EACH * len(data))
        return data


if __name__ == "__main__":
    server = Server()
    server.append_worker(Work, num=1, max_batch_size=SIZE, max_wait_time=WAIT)
    server.run()
