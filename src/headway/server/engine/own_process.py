"""The first setup of a child process of the server: where it writes, which signals it ignores."""

import io
import logging
import os
import signal
import socket
import struct
import sys
from multiprocessing.connection import Connection

STALL = 30  # seconds for which the server may stop reading while the buffer is full


def set_up(channel: Connection, words: Connection | None) -> None:
    """Set up the calling process. words: the pipe for standard output and error, native code's too;
    None: both stay as they are. SIGINT and SIGTERM are ignored, since they reach the whole process
    group and the server decides what to do."""
    if words:
        for descriptor in (1, 2):
            os.dup2(words.fileno(), descriptor)
        words.close()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # so a printed line is logged at once
        logging.basicConfig(format="%(levelname)s: %(message)s")  # the server reads the level
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    limit_stall(channel)


def limit_stall(channel: Connection) -> None:
    """Bound memory and waiting if the server stops reading: the kernel's buffer fills, then a send
    waits, and after STALL seconds it fails and the process ends."""
    with socket.socket(fileno=os.dup(channel.fileno())) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", STALL, 0))
