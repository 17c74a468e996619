"""The figures of docs/textbook.md: claims of texts on batching, one file for each kind of claim.

The texts' own numbers stand in the files as constants named QUOTED. What they come to here is
computed, or simulated on the cost model of benchmarks/textbook/runs.py.
"""

from benchmarks.textbook.quoted.continuous import rates, unused
from benchmarks.textbook.quoted.endpoints import endpoints
from benchmarks.textbook.quoted.formulas import dollars, power, tables
from benchmarks.textbook.quoted.memory_fits import fits
from benchmarks.textbook.quoted.padding import short_lists
from benchmarks.textbook.quoted.phases import phases
from benchmarks.textbook.quoted.sharing import constructed, recorded, tripling
from benchmarks.textbook.quoted.silent import silent
from benchmarks.textbook.quoted.speculation import speculation
from benchmarks.textbook.quoted.utilisation import marginal, utilisation
from benchmarks.textbook.quoted.window import collecting

__all__ = [
    "collecting",
    "constructed",
    "dollars",
    "endpoints",
    "fits",
    "marginal",
    "phases",
    "power",
    "rates",
    "recorded",
    "short_lists",
    "silent",
    "speculation",
    "tables",
    "tripling",
    "unused",
    "utilisation",
]
