"""`headway serve` in a process of its own, with its log read line by line."""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import yaml

HEADWAY, FAKE_ENGINES = "headway", "tests.server.fake_engines"


@contextmanager
def served(config, folder, program=HEADWAY):
    """Start a server of this configuration, and end it with SIGTERM when the block is left.

    Gives its url, what it said when it was ready, its lines so far (a list that grows), and its
    process. Modules of the tests can be imported there.
    """
    path = folder / "headway.yaml"
    server = config.get("server", {}) | {"port": 0}
    process_wide = {"logs": {"format": "json"}, "server": server}
    path.write_text(yaml.safe_dump(config | process_wide))
    command = [sys.executable, "-m", program, "serve", "--config", path]
    places = {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | places, text=True)
    lines, ready = [], threading.Event()

    def read():
        for line in process.stdout:
            lines.append(json.loads(line))
            if lines[-1]["event"] == "ready":
                ready.set()
        ready.set()  # it has ended

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert ready.wait(120) and process.poll() is None, lines[-5:]
        (said,) = [line for line in lines if line["event"] == "ready"]
        url = said["url"].removesuffix("/v1")
        yield SimpleNamespace(url=url, said=said, lines=lines, process=process)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        reader.join(30)
        process.stdout.close()
