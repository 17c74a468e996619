"""What a process of the server's does first: where it writes, and which signals it hears."""

import io
import logging
import os
import signal
import socket
import struct
import sys
from multiprocessing.connection import Connection

STALL = 30  # seconds for which the server may read nothing while the buffer is full


def set_up(channel: Connection, words: Connection | None) -> None:
    """Of the process that calls it. words: takes the standard output and error, native code's too;
    None: they stay where they are. SIGINT and SIGTERM are ignored: they reach the whole process
    group, and the server decides what they mean."""
    if words:
        for descriptor in (1, 2):
            os.dup2(words.fileno(), descriptor)
        words.close()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # a line that is printed is logged at once
        logging.basicConfig(format="%(levelname)s: %(message)s")  # the server reads the level
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    limit_stall(channel)


def limit_stall(channel: Connection) -> None:
    """Bound both memory and waiting if the server reads nothing: first the kernel's buffer fills,
    then the process waits, and after STALL seconds it ends."""
    with socket.socket(fileno=os.dup(channel.fileno())) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", STALL, 0))
