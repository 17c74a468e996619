"""What does each strategy do with the same eight requests? Drawn from real steps.

The real scheduler serves eight requests in four slots in virtual time (a step takes 4 ms and
0.25 ms a token: a toy price, so that padding is seen). Every bar is a row of a batch that the
executor was handed, or a time of the ledger; nothing is drawn by hand. A test draws them again.

    python -m benchmarks.diagrams            writes docs/diagrams/*.svg
"""

import sys

from benchmarks.diagrams.drawings import FOLDER, STRATEGIES, drawings, run
from benchmarks.report import Figure, finish, parser
from benchmarks.textbook.runs import MS


def main() -> int:
    parser(__doc__).parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    drawn = drawings()
    for name, text in drawn.items():
        (FOLDER / name).write_text(text)
    figures = []
    for name, (_, policies) in STRATEGIES.items():
        served = run(policies)
        figures.append(Figure(f"{name}_ms", [served.nanoseconds / MS], unit="ms"))
    return finish("diagrams", __doc__ or "", 0, figures)


if __name__ == "__main__":
    sys.exit(main())
