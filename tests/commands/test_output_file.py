"""Outputs never replace inputs, and are written whole or not at all."""

import os
from pathlib import Path

import pytest

from headway.commands.output_file import check_not_input, check_replaceable, is_stream, replacing
from headway.errors import SettingError


def test_an_output_never_replaces_an_input_under_any_name(tmp_path):
    given, linked, hard = (tmp_path / name for name in ("given", "linked", "hard"))
    given.write_text("mine")
    linked.symlink_to(given)
    hard.hardlink_to(given)
    for path in (given, linked, hard, tmp_path / "." / "given", tmp_path / "no.db-wal"):
        with pytest.raises(SettingError, match=r"--to .* would replace the input"):
            check_not_input(path, "--to", [given, tmp_path / "no.db-wal"])
    check_not_input(tmp_path / "other", "--to", [given])


def test_an_output_replaces_only_a_file_of_its_own_kind(tmp_path):
    path = tmp_path / "out"
    check_replaceable(path, "--to", [b"PAR1"], "Parquet")
    for content in (b"", b"PAR1 and more"):
        path.write_bytes(content)
        check_replaceable(path, "--to", [b"PAR1"], "Parquet")
    path.write_bytes(b"mine")
    with pytest.raises(SettingError, match="is there already, and not Parquet: name another --to"):
        check_replaceable(path, "--to", [b"PAR1"], "Parquet")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path, link = tmp_path / "out", tmp_path / "link"
    path.write_text("before")
    link.symlink_to(path)
    with pytest.raises(ZeroDivisionError), replacing(link) as file:
        file.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "before"
    with replacing(link) as file:
        file.write_text("whole")
        assert path.read_text() == "before"
    assert path.read_text() == "whole" and link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "out"]


def test_an_output_to_an_open_descriptor_is_written_in_place(tmp_path):
    """Like /dev/stdout, whether it is a pipe or leads to a file."""
    reading, writing = os.pipe()
    with (tmp_path / "out").open("w") as file:
        for number in (writing, file.fileno()):
            with replacing(path := Path(f"/dev/fd/{number}")) as itself:
                itself.write_text("said")
            assert is_stream(path) and itself == path
            check_replaceable(path, "--json", [b"{"], "JSON")
    assert os.read(reading, 9) == b"said"
    assert (tmp_path / "out").read_text() == "said"
    os.close(reading)
    os.close(writing)
