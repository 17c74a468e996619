"""The lines of a batch's input file, read in pieces."""

import json
from codecs import BOM_UTF8

import pytest

from headway.server.jobs.validation import InputReader

PATH = "/v1/functions/shout"


def line(number, body):
    """A line of the file. body: JSON."""
    head = {"custom_id": f"c{number}", "method": "POST", "url": PATH}
    return json.dumps(head)[:-1].encode() + b', "body": ' + body + b"}\n"


@pytest.mark.parametrize(
    "body",
    ['{"text":"漢字 é 😀","n":[1,2.5,null,true]}', '"\\n\\u0000\\u001f"', '{"a":[],"b":{}}'],
)
def test_a_compact_body_is_stored_as_it_was_sent(body):
    reader = InputReader(PATH, 10, 1_000, takes_objects=False)
    [item] = reader.read(line(0, body.encode()))
    assert (item.body.decode(), reader.errors) == (body, [])


def test_escapes_of_printable_characters_are_decoded():
    reader = InputReader(PATH, 10, 1_000, takes_objects=False)
    [item] = reader.read(line(0, rb'"\u6f22 \ud83d\ude00"'))
    assert item.body.decode() == '"漢 😀"'


def test_half_a_surrogate_pair_makes_a_line_invalid():
    reader = InputReader(PATH, 10, 1_000, takes_objects=False)
    assert reader.read(line(0, rb'"\ud83d"')) == []
    assert [each["code"] for each in reader.errors] == ["invalid_json_line"]


def test_a_models_name_is_cut_and_loses_its_nul_so_that_every_store_keeps_it():
    reader = InputReader(PATH, 10, 1_000, takes_objects=True)
    reader.read(line(0, rb'{"model": "a\u0000' + b"b" * 300 + b'"}'))
    assert reader.model == "a" + "b" * 198 and not reader.errors


def test_a_file_may_begin_with_a_byte_order_mark():
    reader = InputReader(PATH, 10, 1_000, takes_objects=False)
    [item] = reader.read(BOM_UTF8 + line(0, b"1"))
    assert (item.body, reader.errors) == (b"1", [])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_file_in_utf_16_is_named_once(encoding):
    reader = InputReader(PATH, 10, 1_000, takes_objects=False)
    whole = ("" if encoding == "utf-16" else "\ufeff") + (line(0, b"1") + line(1, b"1")).decode()
    assert reader.read(whole.encode(encoding)) == [] and reader.has_failed
    [error] = reader.errors
    assert error["message"] == "the file is in UTF-16: save it as UTF-8" and error["line"] == 1


def test_the_error_of_a_later_line_names_no_other_line():
    reader = InputReader(PATH, 10, 1_000, takes_objects=False)
    reader.read(line(0, b"1") + b"x\n")
    [error] = reader.errors
    assert error["line"] == 2 and error["message"].endswith("at column 1")
