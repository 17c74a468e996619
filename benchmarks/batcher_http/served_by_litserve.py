"""The function as an API of litserve, in litserve's own environment."""

import os
import sys
import time

import litserve

SIZE, BASE, EACH = 32, 0.005, 0.0002  # items; seconds
WAIT = float(os.environ["WAIT_MS"]) / 1e3


class Work(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        pass

    def predict(self, items: list[int]) -> list[int]:
        time.sleep(BASE + EACH * len(items))
        return items


if __name__ == "__main__":
    work = Work(max_batch_size=SIZE, batch_timeout=WAIT)
    # ZeroMQ between its processes, which litserve advises from 100 requests a second on.
    server = litserve.LitServer(work, accelerator="cpu", devices=1, fast_queue=True)
    quiet = {"log_level": "warning", "generate_client_file": False}
    server.run(host="127.0.0.1", port=int(sys.argv[1]), **quiet)
