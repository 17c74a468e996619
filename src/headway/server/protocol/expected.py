"""The answer length that a caller expects, from a header. Strategies that plan memory use it."""

from collections.abc import Mapping

from headway.server.protocol.problem import wrong

EXPECTED = "x-headway-expected-tokens"
MOST = 10**9
DIGITS = frozenset("0123456789")


def expected_tokens(headers: Mapping[str, str]) -> int:
    """Tokens that the caller expects in each answer; 0: not given. Raises Problem."""
    text = headers.get(EXPECTED)
    if text is None:
        return 0
    few = 0 < len(text) <= len(str(MOST)) and DIGITS.issuperset(text)
    if not few or not 0 < (value := int(text)) <= MOST:
        raise wrong(
            f"{EXPECTED} must be a whole number from 1 to {MOST}, not {text[:40]!r}", EXPECTED
        )
    return value
