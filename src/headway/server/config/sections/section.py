"""The base of all sections: frozen, and strict about unknown keys."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from headway.errors import SettingError, did_you_mean

Location = tuple[str | int, ...]  # keys and indices, outermost first


class SettingAtError(SettingError):
    """An error with its location below the section that raises it, to find the value's source."""

    def __init__(self, where: Location, message: str) -> None:
        super().__init__(message)
        self.where = where


@contextmanager
def placed_at(*where: str | int) -> Iterator[None]:
    """Add this location to a SettingError of the block: keys and indices, outermost first."""
    try:
        yield
    except SettingError as error:
        raise SettingAtError(where, str(error)) from None


class Section(BaseModel):
    """A section of the file. Its values are checked together by `check`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        """Refuse unknown keys. An empty section keeps its defaults."""
        if given is None:
            return {}
        if isinstance(given, dict):
            refuse_unknown(given, cls.model_fields)
        return given

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Raise SettingError if the section's values contradict each other."""


def refuse_unknown(given: Collection[Any], allowed: Collection[str]) -> None:
    """Raise SettingAtError for a key that is not allowed; it names the nearest allowed one."""
    for key in given:
        if key not in allowed:
            raise SettingAtError((str(key),), f"is not known{did_you_mean(str(key), allowed)}")


def _number(value: Any) -> Any:
    """Refuse a boolean: YAML reads `yes` as true, and pydantic takes true for 1."""
    if isinstance(value, bool):
        raise SettingError(f"{str(value).lower()} is not a number")
    return value


Number = BeforeValidator(_number)
Count = Annotated[int, Field(ge=1), Number]


def _some(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise SettingError("an empty list names none: leave it out for all")
    return names


Some = AfterValidator(_some)  # for a list that means all if it is left out, but not if it is empty
