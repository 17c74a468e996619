"""A small cost model made by hand, and small traffic for it."""

from dataclasses import replace

from headway.core.cost.step_cost import Echo, Residuals, StepCost
from headway.costing.calibration import Calibration

QUANTILES = (700, 850, 950, 1000, 1050, 1200, 1800)
COST = replace(
    StepCost.of(3_000_000, per_token=100_000, per_pair=20),
    residuals=(Residuals(QUANTILES), Residuals(QUANTILES)),
    echoes=(Echo(1_000, 20_000_000),),
)
CALIBRATION = Calibration(
    model="handmade",
    dtype="float32",
    device="cpu",
    machine={"processor": "Abacus 3", "cores": 4, "python": "3.99"},
    analytical=False,
    cost=COST,
    kv_bytes=1_000,
    num_blocks=2_048,
    fit=3_000,
    block_size=16,
    context=2_048,
    slots=16,
    threads=3,
    price_per_hour=0.25,
    about={
        "date": "2026-01-31",
        "designed": {"samples": 1_204, "largest_tokens": 2_048, "mean_error": 43},
        "errors_of_designed_alone": {"memory": {"median": -31, "p90": 120}},
        "errors": {"memory": {"median": 12, "p90": 83}, "compute": {"median": -4, "p90": 110}},
    },
)
LANES = """
chat:
  arrivals: poisson
  prompt: [20, 200]
  answer: {mean: 12, cv: 0.5}
  budget: {ttft: 4 x unloaded, tpot: 30}
  weight: 2
voice:
  arrivals: {gamma: {cv: 1.5}}
  prompt: 30
  answer: 8
  budget: {ttft: 60}
"""


def lanes(folder):
    path = folder / "lanes.yaml"
    path.write_text(LANES)
    return path
