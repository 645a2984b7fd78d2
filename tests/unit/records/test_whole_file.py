"""A file is written whole, or is as it was."""

import os
import stat

import pytest

from ftax.records import whole_file
from ftax.records.whole_file import write_whole


def fail(*_arguments):
    raise OSError(28, "No space left on device")


def interrupt(*_arguments):
    raise KeyboardInterrupt


@pytest.mark.parametrize("fault", [fail, interrupt])
@pytest.mark.parametrize("before", [b"before", None])
def test_what_cannot_be_written_leaves_what_was_there(tmp_path, monkeypatch, fault, before):
    path = tmp_path / "page.html"
    if before is not None:
        path.write_bytes(before)
    monkeypatch.setattr(whole_file.os, "replace", fault)
    with pytest.raises((OSError, KeyboardInterrupt)):
        write_whole(path, b"after")
    assert [found.read_bytes() for found in tmp_path.iterdir()] == [before] * (before is not None)


def test_a_new_file_is_as_any_other_and_a_link_stays(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    mask = os.umask(0o027)
    try:
        write_whole(link, b"content")
    finally:
        os.umask(mask)
    assert link.is_symlink() and target.read_bytes() == b"content"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_device_is_written_to_and_not_replaced():
    write_whole("/dev/null", b"content")
    assert not os.path.isfile("/dev/null")
