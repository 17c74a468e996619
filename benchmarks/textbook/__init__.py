"""What do the figures that people quote about batching come to when they are computed here?

Each part of docs/strategies.md and docs/textbook.md names the command that prints its figures:

    python -m benchmarks.textbook --part padding

A part is arithmetic (exact), simulated (the real scheduler in virtual time, on a cost model of
about an 8B model on one H100 that is not calibrated), or measured (the real engine on this
machine). `--write` brings the documents up to date with what the parts say; a test compares the
two for all parts that are not measured.
"""
