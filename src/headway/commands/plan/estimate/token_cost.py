"""The price of a million answer tokens."""

from headway.commands.plan.estimate.checked_estimate import Estimate


def per_million(price_per_hour: float, tokens_per_second: float) -> float:
    """The price of a million tokens, in the currency of the price per hour."""
    return price_per_hour / 3_600 / tokens_per_second * 1e6


def cost_estimate(price_per_hour: float, rate: float, answer: float, where: str) -> Estimate:
    """The price of a million answer tokens.

    rate: requests per second. answer: mean tokens of an answer. where: the operating point, in
    words.
    """
    return Estimate(
        question=f"cost per million tokens of answers, {where}",
        value=per_million(price_per_hour, rate * answer),
        unit="per million",
        formula=f"{price_per_hour:g} an hour / ({rate:.4g} requests/s x {answer:.4g} tokens)",
        assumes="the machine is paid by the hour, busy or not, and serves nothing else",
        source="arithmetic; in the currency of the price",
        holds="any rate that the machine can sustain",
    )
