"""`models`: which model is served, and under which names."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from headway.errors import SettingError
from headway.executor.precision import with_quantize
from headway.models import EMBEDDED
from headway.server.config.sections.section import Section

AT = "@"  # between a model's name and a lane's, in a request


class ModelSettings(Section):
    """A checkpoint and the names that clients call it by."""

    name: Annotated[
        str,
        Field(description="The name that clients use. Default: the folder's name or the hub id."),
    ] = ""
    path: Annotated[
        str, Field(description="A checkpoint's folder or hub id. Default: the embedded model.")
    ] = ""
    dtype: Annotated[
        str,
        Field(description="float32 or bfloat16. Default: as stored, if this CPU is fast at it."),
    ] = ""
    quantize: Annotated[
        str,
        Field(
            description="int8: weights in 8 bits, by headway's own executor on a CPU. "
            "Default: they are in the dtype."
        ),
    ] = ""
    device: Annotated[
        str,
        Field(description="A device as torch names it. Default: cuda if there is one, else cpu."),
    ] = ""
    aliases: Annotated[tuple[str, ...], Field(description="Other names that clients may use.")] = ()
    adapters: Annotated[
        dict[str, str],
        Field(
            description="LoRA adapters, for the executor vllm: folders or hub ids, by the names "
            "that clients give as the model. Default: none."
        ),
    ] = {}

    @property
    def served_name(self) -> str:
        """The model's name in answers, lists and metrics."""
        if self.name or not self.path:
            return self.name or EMBEDDED.name
        folder = Path(self.path)
        return folder.resolve().name if folder.is_dir() else self.path

    @property
    def precision(self) -> str:
        """The dtype and the quantisation under one name. SettingError for an unknown one."""
        return with_quantize(self.dtype, self.quantize)

    def check(self) -> None:
        with_quantize(self.dtype, self.quantize)
        names = (self.served_name, *self.aliases, *self.adapters)
        if len(set(names)) < len(names):
            raise SettingError(
                f"its name, aliases and adapters are not distinct: {', '.join(names)}"
            )
        if wrong := [each for each in names if not each.strip() or AT in each]:
            raise SettingError(
                f"{wrong[0]!r} cannot name a model: {AT} is for lanes, as in MODEL{AT}offline"
            )
