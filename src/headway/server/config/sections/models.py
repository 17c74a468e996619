"""`models`: the checkpoints and functions that are served, and their names."""

import re
from os.path import isdir  # unlike Path's, it never raises
from pathlib import Path
from typing import Annotated

from pydantic import Field

from headway.errors import SettingError
from headway.executor.precision import with_quantize
from headway.models import EMBEDDED
from headway.server.config.amounts import MemoryField
from headway.server.config.sections.engine import OwnEngineSettings
from headway.server.config.sections.section import Count, Section, SettingAtError

AT = "@"  # between a model's name and a lane's, in a request
NUMBER = "#"  # between an entry's name and the number of its replica
MOST_REPLICAS = 64
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
IN_A_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
OF_FUNCTIONS = frozenset({"function", "name", "memory", "engine"})


class ModelSettings(Section):
    """A checkpoint or a function, and the names that clients call it by."""

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
    function: Annotated[
        str,
        Field(
            description="In place of a checkpoint: module:name of a function of a list, which is "
            "served at /v1/functions/NAME. Default: none."
        ),
    ] = ""
    memory: Annotated[
        MemoryField,
        Field(
            description="What it may take, weights included: a share of the free memory such as "
            "0.3, or an amount such as 4GiB. Default: alone all that is free; beside others what "
            "it can use of an equal part."
        ),
    ] = None
    replicas: Annotated[
        Count,
        Field(
            le=MOST_REPLICAS,
            description="Engines that serve this checkpoint, each in a process of its own and with "
            "memory of its own.",
        ),
    ] = 1
    engine: Annotated[
        OwnEngineSettings,
        Field(description="What differs for this entry from the section `engine`."),
    ] = OwnEngineSettings()

    @property
    def served_name(self) -> str:
        """The entry's name in answers, lists and metrics."""
        if self.function and not self.name:
            return self.function.partition(":")[2]
        if self.name or not self.path:
            return self.name or EMBEDDED.name
        folder = Path(self.path)
        return folder.resolve().name if isdir(folder) else self.path

    @property
    def engine_names(self) -> tuple[str, ...]:
        """The names of the entry's engines in logs, metrics and the ledger."""
        if self.replicas == 1:
            return (self.served_name,)
        return tuple([f"{self.served_name}{NUMBER}{n}" for n in range(1, self.replicas + 1)])

    @property
    def precision(self) -> str:
        """The dtype and the quantisation as one name. Raises SettingError if one is unknown."""
        return with_quantize(self.dtype, self.quantize)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that clients may use, the entry's own name first."""
        return (self.served_name, *self.aliases, *self.adapters)

    def check(self) -> None:
        if self.function:
            return self._check_function()
        with_quantize(self.dtype, self.quantize)
        names = self.names
        if len(set(names)) < len(names):
            raise SettingError(
                f"its name, aliases and adapters are not distinct: {', '.join(names)}"
            )
        if wrong := [each for each in names if not each.strip() or AT in each]:
            raise SettingError(
                f"{wrong[0]!r} cannot name a model: {AT} is for lanes, as in MODEL{AT}offline"
            )

    def _check_function(self) -> None:
        if not FUNCTION.fullmatch(self.function):
            raise SettingAtError(("function",), f"is module:name, not {self.function!r}")
        for name in sorted(self.model_fields_set - OF_FUNCTIONS):
            raise SettingAtError((name,), "is for checkpoints, not for a function")
        for name in sorted(self.engine.model_fields_set - {"restart"}):
            raise SettingAtError(("engine", name), "is for checkpoints, not for a function")
        if not IN_A_PATH.fullmatch(self.served_name):
            raise SettingAtError(
                ("name",), f"{self.served_name!r} cannot be a part of a path: letters, digits, _.-"
            )
