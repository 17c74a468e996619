"""Recorded traces: the formats that are read, and the errors that name the line."""

import gzip

import pytest

from headway.errors import SettingError
from headway.traffic.trace import Arrival, read_shipped_trace, read_trace

HEADER = "arrival_s,input_tokens,output_tokens\n"


@pytest.fixture
def trace(tmp_path):
    def write(text):
        path = tmp_path / "mine.csv"
        path.write_text(text)
        return path

    return write


def test_rows_are_read_whatever_other_columns_the_file_has(trace):
    path = trace("client,output_tokens,arrival_s,input_tokens\n7,10,0.0,12\n\n7,0,1.5,3.0\n")
    assert read_trace(path) == [Arrival(0, 12, 10), Arrival(1_500_000_000, 3, 0)]


def test_gzip_is_recognised_by_its_first_bytes(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(gzip.compress((HEADER + "0.25,1,2\n").encode()))
    assert read_trace(path) == [Arrival(250_000_000, 1, 2)]


def test_a_byte_order_mark_is_not_part_of_the_first_column(tmp_path):
    path, text = tmp_path / "mine.csv", (HEADER + "0.25,1,2\n").encode("utf-8-sig")
    for content in (text, gzip.compress(text)):
        path.write_bytes(content)
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
def test_a_bad_row_is_refused_with_its_line(trace, rows, said):
    with pytest.raises(SettingError, match=f"mine.csv, {said}"):
        read_trace(trace(HEADER + rows))


@pytest.mark.parametrize(
    "text, missing",
    [("arrival_s,input_tokens\n0,1\n", "output_tokens"), ("", "arrival_s, input_tokens, output")],
)
def test_a_missing_column_is_named(trace, text, missing):
    with pytest.raises(SettingError, match=f"line 1: there is no column {missing}"):
        read_trace(trace(text))


def test_an_unreadable_file_is_a_setting_error(tmp_path):
    with pytest.raises(
        SettingError, match=r"the trace none\.csv cannot be read: No such file or directory$"
    ):
        read_trace(tmp_path / "none.csv")
    whole = gzip.compress((HEADER + "0,1,2\n" * 999).encode())
    for broken in (whole[:40], whole[:12] + b"\x00\xff" * 20, b"\xff\xfe\x00"):
        path = tmp_path / "broken.csv"
        path.write_bytes(broken)
        with pytest.raises(SettingError, match=r"the trace broken\.csv cannot be read"):
            read_trace(path)


@pytest.mark.parametrize("name, rows", [("azure2023-code", 2_183), ("azure2023-conv", 3_888)])
def test_the_shipped_traces_have_their_rows_within_600_seconds(name, rows):
    trace = read_shipped_trace(name)
    assert len(trace) == rows
    assert trace[-1].at <= 600 * 10**9
    assert all(arrival.prompt > 0 and arrival.answer > 0 for arrival in trace)


def test_azures_csv_is_read_with_times_from_its_first_arrival(trace):
    path = trace(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:16:46.6805901,39,1\n"
    )
    assert read_trace(path) == [Arrival(0, 374, 44), Arrival(60 * 10**9, 39, 1)]
    path = trace("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.5+00:00,5,6\n")
    assert read_trace(path) == [Arrival(0, 5, 6)]


def test_dates_are_compared_by_their_offsets_and_may_be_before_1970(trace):
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    path = trace(azure + "2024-03-31T01:59:59+01:00,5,6\n2024-03-31T03:00:01+02:00,7,8\n")
    assert read_trace(path) == [Arrival(0, 5, 6), Arrival(2 * 10**9, 7, 8)]
    path = trace(azure + "2024-10-27T02:59:59+02:00,5,6\n2024-10-27T02:00:01+01:00,7,8\n")
    assert read_trace(path) == [Arrival(0, 5, 6), Arrival(2 * 10**9, 7, 8)]
    path = trace(azure + "1969-12-31 23:59:58,5,6\n1970-01-01 00:00:01,7,8\n")
    assert read_trace(path) == [Arrival(0, 5, 6), Arrival(3 * 10**9, 7, 8)]
    path = trace(azure + "1969-12-31 23:59:58,5,6\n1969-12-31 23:59:57,7,8\n")
    with pytest.raises(SettingError, match="line 3: it arrives before the line above it"):
        read_trace(path)


def test_burstgpts_csv_is_read_in_both_widths(trace):
    short = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    path = trace(short + "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,0,1087,API log\n")
    assert read_trace(path) == [Arrival(0, 472, 18), Arrival(40_500_000_000, 1087, 0)]
    wide = "Timestamp,Session ID,Elapsed time," + short.removeprefix("Timestamp,")
    path = trace(wide + "5,1,2.5,ChatGPT,472,18,490,Conversation log\n")
    assert read_trace(path) == [Arrival(0, 472, 18)]


def test_mooncakes_json_lines_keep_their_prefix_blocks(tmp_path, trace):
    path = tmp_path / "moon.jsonl"
    path.write_text(
        '{"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [3, 4]}\n'
        '\n{"timestamp": 27, "input_length": 5, "output_length": 2, "hash_ids": []}\n'
    )
    assert read_trace(path) == [Arrival(0, 900, 5, (3, 4)), Arrival(27_000_000, 5, 2)]
    path = trace("arrival_s,input_tokens,output_tokens,prefix_block_ids\n0.0,900,5,3 4\n")
    assert read_trace(path) == [Arrival(0, 900, 5, (3, 4))]


def test_csv_and_json_lines_may_have_a_supersede_key(trace):
    path = trace(
        HEADER.replace("arrival_s", "supersede,arrival_s") + "k,0,1,2\n,1,1,2\n a ,2,1,2\n"
    )
    assert [each.supersede for each in read_trace(path)] == ["k", "", "a"]
    path = trace(MOON.replace("}", ', "supersede": "k"}') + MOON)
    assert [each.supersede for each in read_trace(path)] == ["k", ""]
    path = trace(MOON.replace("}", ', "supersede": null}'))
    assert [each.supersede for each in read_trace(path)] == [""]


MOON = '{"timestamp": 5, "input_length": 9, "output_length": 5, "hash_ids": [3]}\n'


@pytest.mark.parametrize(
    "text, said",
    [
        (MOON + MOON.replace("5,", "4,", 1), "line 2: it arrives before"),
        (MOON + MOON.replace("9", "-9"), "line 2: input_length is -9"),
        (MOON + MOON.replace("9", "9" * 400), "line 2: input_length has too many digits"),
        (MOON + MOON.replace("9", "null"), "line 2: input_length is None, not a number"),
        (MOON + '{"timestamp": 6}', "line 2: there is no input_length, output_length"),
        (MOON + "[1]", "line 2: it is not a JSON object"),
        (MOON + "{", "line 2: it is not JSON"),
        (MOON + '{"a": ' + "[" * 100_000, "line 2: it is not JSON"),
        (MOON.replace("}", ', "supersede": 7}'), "line 1: supersede is 7, not a text"),
        (MOON.replace("[3]", "3"), "line 1: the ids of its prefix blocks are no list"),
        ("TIMESTAMP,ContextTokens\n", "line 1: there is no column GeneratedTokens"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n",
            "line 2: TIMESTAMP is 'yesterday', not a date and a time",
        ),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,-2\n",
            "line 2: GeneratedTokens is -2",
        ),
        (
            "Timestamp,Model,Request tokens,Response tokens\n9,a,1,2\n8,a,1,2\n",
            "line 3: it arrives before the line above it; sort by Timestamp",
        ),
    ],
)
def test_a_bad_row_of_a_published_format_is_refused_with_its_line(trace, text, said):
    with pytest.raises(SettingError, match=said):
        read_trace(trace(text))
