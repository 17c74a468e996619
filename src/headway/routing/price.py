"""The price of a target's work (Price), so that targets can be compared."""

from dataclasses import dataclass

from headway.errors import SettingError


@dataclass(frozen=True, slots=True)
class Price:
    """A price, in any unit that all targets share. Costs are whole billionths of the unit, so that
    they sum exactly.

    By default, an answer costs its device seconds.
    """

    device_second: float = 1.0
    prompt: float = 0.0  # of a million prompt tokens
    answer: float = 0.0  # of a million generated tokens

    def __post_init__(self) -> None:
        for value in (self.device_second, self.prompt, self.answer):
            if not 0 <= value < 1e9:
                raise SettingError(f"{value} is no price")

    def cost(self, nanoseconds: int, prompt: int = 0, answer: int = 0) -> int:
        """The cost in billionths of the unit. prompt, answer: tokens."""
        tokens = self.prompt * prompt + self.answer * answer
        return round(self.device_second * nanoseconds + 1_000 * tokens)


DEVICE_TIME = Price()
