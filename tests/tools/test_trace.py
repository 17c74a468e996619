"""Recorded traffic: what is read, and what is refused with the line that is to blame."""

import gzip

import pytest

from headway.errors import SettingError
from headway.tools.trace import Arrival, read_trace, shipped

HEADER = "arrival_s,input_tokens,output_tokens\n"


@pytest.fixture
def trace(tmp_path):
    def write(text):
        path = tmp_path / "mine.csv"
        path.write_text(text)
        return path

    return write


def test_rows_are_read_whatever_else_the_file_holds(trace):
    path = trace("client,output_tokens,arrival_s,input_tokens\n7,10,0.0,12\n\n7,0,1.5,3.0\n")
    assert read_trace(path) == [Arrival(0, 12, 10), Arrival(1_500_000_000, 3, 0)]


def test_gzip_is_known_by_its_first_bytes(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(gzip.compress((HEADER + "0.25,1,2\n").encode()))
    assert read_trace(path) == [Arrival(250_000_000, 1, 2)]


@pytest.mark.parametrize(
    "rows, said",
    [
        ("0,1,2\n1,-3,2\n", "line 3: input_tokens is -3"),
        ("0,1,2\n1,3,-1\n", "line 3: output_tokens is -1"),
        ("-1,1,2\n", "line 2: arrival_s is -1"),
        ("0,1,2\n5,1,2\n\n4,1,2\n", "line 5: it arrives before the line above it"),
        ("0,many,2\n", "line 2: input_tokens is 'many', not a number"),
        ("nan,1,2\n", "line 2: arrival_s is nan"),
        ("inf,1,2\n", "line 2: arrival_s is inf"),
        ("0,1.5,2\n", "line 2: input_tokens is 1.5"),
        ("0,1,2\n3,4\n", "line 3: 2 fields where the header names 3"),
    ],
)
def test_a_bad_row_is_refused_by_its_line(trace, rows, said):
    with pytest.raises(SettingError, match=f"mine.csv, {said}"):
        read_trace(trace(HEADER + rows))


@pytest.mark.parametrize(
    "text, missing",
    [("arrival_s,input_tokens\n0,1\n", "output_tokens"), ("", "arrival_s, input_tokens, output")],
)
def test_a_missing_column_is_named(trace, text, missing):
    with pytest.raises(SettingError, match=f"line 1: there is no column {missing}"):
        read_trace(trace(text))


def test_a_file_that_cannot_be_read_is_a_setting_that_cannot_be_obeyed(tmp_path):
    with pytest.raises(SettingError, match=r"the trace none\.csv cannot be read"):
        read_trace(tmp_path / "none.csv")
    whole = gzip.compress((HEADER + "0,1,2\n" * 999).encode())
    for broken in (whole[:40], whole[:12] + b"\x00\xff" * 20, b"\xff\xfe\x00"):
        path = tmp_path / "broken.csv"
        path.write_bytes(broken)
        with pytest.raises(SettingError, match=r"the trace broken\.csv cannot be read"):
            read_trace(path)


@pytest.mark.parametrize("name, rows", [("azure2023-code", 2_183), ("azure2023-conv", 3_888)])
def test_the_shipped_windows(name, rows):
    trace = shipped(name)
    assert len(trace) == rows
    assert trace[-1].at <= 600 * 10**9
    assert all(arrival.prompt > 0 and arrival.answer > 0 for arrival in trace)
