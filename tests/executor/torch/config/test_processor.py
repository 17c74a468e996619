"""The processor's features as the system states them, compared with torch."""

import pytest
import torch

from headway.executor.torch.config import processor

ZEN3 = "processor\t: 0\nflags\t\t: fpu sse sse2 avx avx2 fma\nbugs\t\t: sysret_ss_attrs\n"
ZEN4 = ZEN3.replace("avx2", "avx2 avx512f avx512dq avx512bw avx512vl avx512_bf16")
NEOVERSE = "processor\t: 0\nFeatures\t: fp asimd bf16\nCPU part\t: 0xd40\n"


@pytest.fixture
def said(monkeypatch, tmp_path):
    """A function: the text of cpuinfo -> whether that processor has fast bfloat16."""

    def ask(text):
        path = tmp_path / "cpuinfo"
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(processor, "CPUINFO", path)
        return processor.has_fast_bfloat16()

    return ask


@pytest.mark.parametrize(
    ("text", "quick"),
    [
        (ZEN3, False),
        (ZEN4, True),
        (NEOVERSE, True),
        (NEOVERSE.replace(" bf16", ""), False),
        ("model name\t: a processor of which no more is said\n", True),
        (None, True),
    ],
)
def test_bfloat16_support_is_read_from_the_processors_flags(said, text, quick):
    assert said(text) is quick


@pytest.mark.skipif(not torch._C._has_mkldnn, reason="this torch has no oneDNN to agree with")
@pytest.mark.skipif(not processor.CPUINFO.is_file(), reason="the system does not say")
def test_torch_agrees_about_bfloat16_support():
    assert processor.has_fast_bfloat16() == torch.ops.mkldnn._is_mkldnn_bf16_supported()
