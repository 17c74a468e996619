"""Precision: the dtype of the computation and the quantization of the weights, under one name."""

from dataclasses import dataclass

from headway.errors import SettingError

ITEMSIZES = {"float32": 4, "bfloat16": 2}  # bytes per number, by dtype of the computation
INT8 = "int8"
AND = "+"  # in a name: bfloat16+int8


@dataclass(frozen=True, slots=True)
class Precision:
    """A dtype and a quantization. str() is its name: bfloat16, or bfloat16+int8."""

    dtype: str  # of activations, keys and values
    quantize: str = ""  # of the weights of products: int8; empty: they are in the dtype too

    @property
    def itemsize(self) -> int:
        """Bytes of a number in the dtype, which is one of ITEMSIZES."""
        return ITEMSIZES[self.dtype]

    def __str__(self) -> str:
        return self.dtype + (AND + self.quantize if self.quantize else "")


def read_precision(name: str) -> Precision:
    """Read a name; an empty dtype stays empty. Raises SettingError for an unknown quantization.

    Dtypes are not checked, because vLLM has others.
    """
    dtype, _, quantize = name.partition(AND)
    if quantize not in ("", INT8):
        raise SettingError(f"quantize must be {INT8}, not {quantize}")
    return Precision(dtype, quantize)


def with_quantize(dtype: str, quantize: str) -> str:
    """The name of both settings together. Raises SettingError for an unknown quantization."""
    found = read_precision(dtype)
    return str(read_precision(f"{found.dtype}{AND}{quantize}" if quantize else dtype))
