"""python -m benchmarks.peers.drivers.to_ir SOURCE OUT TYPE: OpenVINO's IR.

TYPE fp16: of the checkpoint SOURCE, by optimum-intel. TYPE int8: of the IR in SOURCE, whose weights
nncf compresses, each output channel by itself. That is what optimum does for int8 too.
"""

import sys
from pathlib import Path

FILE = "openvino_model.xml"


def export(checkpoint: str, out: Path) -> None:
    from optimum.exporters.openvino import main_export
    from optimum.intel import OVConfig

    config = OVConfig(dtype="fp16")
    main_export(checkpoint, out, task="text-generation-with-past", ov_config=config)


def compress(source: str, out: Path) -> None:
    import nncf
    import openvino

    model = openvino.Core().read_model(Path(source, FILE))
    nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
    out.mkdir(parents=True)
    openvino.save_model(model, out / FILE)
    for file in Path(source).glob("*.json"):
        (out / file.name).write_bytes(file.read_bytes())


def main() -> None:
    source, out, word = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    part = out.with_name(out.name + ".part")
    (compress if word == "int8" else export)(source, part)
    part.replace(out)


if __name__ == "__main__":
    main()
