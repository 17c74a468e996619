"""Choose which model or function answers: by rules, load, cost, cascade, ensemble or fallback."""

from headway.routing.calibrate import Calibration, Labelled, calibrate_cascade, paired
from headway.routing.cascade import Cascade
from headway.routing.choosing import Cheapest, LeastLoaded
from headway.routing.circuit import CircuitSettings
from headway.routing.decision import AttemptRow, Basis, DecisionRow, Outcome, Why
from headway.routing.ensemble import Best, Ensemble, Majority
from headway.routing.fallback import Fallback
from headway.routing.judges import Agreed, Confident, Valid, follows_schema, matches
from headway.routing.price import Price
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.route import Route
from headway.routing.rules import Rule, Rules
from headway.routing.targets.batcher import BatcherTarget
from headway.routing.targets.llm import LLMTarget
from headway.routing.targets.remote import RemoteTarget
from headway.routing.targets.simulated import SimulatedTarget
from headway.routing.targets.target import Estimate, Target, TargetLoad

__all__ = [
    "Agreed",
    "AttemptRow",
    "Basis",
    "BatcherTarget",
    "Best",
    "Calibration",
    "Cascade",
    "Cheapest",
    "CircuitSettings",
    "Confident",
    "DecisionRow",
    "Ensemble",
    "Estimate",
    "Fallback",
    "LLMTarget",
    "Labelled",
    "LeastLoaded",
    "Majority",
    "Outcome",
    "Price",
    "RemoteTarget",
    "Route",
    "RouteAnswer",
    "RouteRequest",
    "Rule",
    "Rules",
    "SimulatedTarget",
    "Target",
    "TargetLoad",
    "Valid",
    "Why",
    "calibrate_cascade",
    "follows_schema",
    "matches",
    "paired",
]
