"""What every section of the configuration does: it is frozen, and says no to unknown keys."""

from collections.abc import Collection
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from headway.errors import SettingError, did_you_mean

Where = tuple[str | int, ...]  # keys and indices, outermost first


class SettingAtError(SettingError):
    """About something inside the section that says no, so that its origin can be named."""

    def __init__(self, where: Where, message: str) -> None:
        super().__init__(message)
        self.where = where


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        """A section that is named and left empty says nothing."""
        if given is None:
            return {}
        if isinstance(given, dict):
            known(given, cls.model_fields)
        return given

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Raise SettingError if its values are at odds with each other."""


def known(given: Collection[Any], allowed: Collection[str]) -> None:
    for key in given:
        if key not in allowed:
            raise SettingAtError((str(key),), f"is not known{did_you_mean(str(key), allowed)}")


def _number(value: Any) -> Any:
    """YAML reads `yes` as true, and pydantic true as 1."""
    if isinstance(value, bool):
        raise SettingError(f"{str(value).lower()} is not a number")
    return value


Number = BeforeValidator(_number)
Count = Annotated[int, Field(ge=1), Number]
