"""`headway serve` with the fake executor: a server that starts fast, to be killed often.

python -m benchmarks.ledger.fake_server serve --config headway.yaml
"""

from unittest.mock import patch

from benchmarks.ledger.fake_engine import run
from headway.cli import main
from headway.server.engine import client

if __name__ == "__main__":
    with patch.object(client, "run", run):
        main()
