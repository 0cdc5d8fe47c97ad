import gzip
from hashlib import sha256

import pytest

from workloads import WorkloadError
from workloads.readers import text
from workloads.readers.text import TextFile


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_lines_are_numbered_whatever_the_form(write, end, last, packed, mark):
    content = (mark + end.join(["a,b", "", "  ", "ü", "z"]) + end * last).encode()
    file = TextFile(write(gzip.compress(content) if packed else content))
    assert list(file.lines()) == [(1, "a,b"), (4, "ü"), (5, "z")]
    assert file.sha256 == sha256(content).hexdigest()
    assert file.first_line() == "a,b"


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_size_of_the_blocks_does_not_matter(write, monkeypatch, block):
    monkeypatch.setattr(text, "_BLOCK", block)
    content = "\ufeffa\r\n\r\nüü\r\n\nz\n".encode()
    file = TextFile(write(content))
    assert list(file.lines()) == [(1, "a"), (3, "üü"), (5, "z")]
    assert file.sha256 == sha256(content).hexdigest()


def test_gzip_is_recognised_by_content_not_by_name(write):
    assert TextFile(write(b"plain", "a.csv.gz")).first_line() == "plain"


def test_empty_file_has_no_lines(write):
    assert list(TextFile(write(b"")).lines()) == []
    assert TextFile(write(gzip.compress(b""))).first_line() == ""


def test_missing_file_is_named(tmp_path):
    with pytest.raises(WorkloadError, match=r"none\.csv: no such file"):
        TextFile(tmp_path / "none.csv").first_line()


def test_directory_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match="directory"):
        TextFile(tmp_path).first_line()


def test_other_trouble_is_told(tmp_path):
    with pytest.raises(WorkloadError, match="cannot be read: File name too long"):
        TextFile(tmp_path / ("x" * 5000)).first_line()


def test_damaged_gzip_is_told(write):
    whole = gzip.compress(b"a,b\n" * 1000)
    broken = [whole[: len(whole) // 2], whole[:-8] + b"\0" * 8, whole[:12] + b"\xff" * 20]
    for data in broken:
        with pytest.raises(WorkloadError, match="damaged gzip data") as error:
            list(TextFile(write(data)).lines())
        assert "\n" not in str(error.value)


def test_other_encodings_are_told_with_their_line(write):
    with pytest.raises(WorkloadError, match=r"line 3: .*UTF-8"):
        list(TextFile(write(b"a\nb\n\xff\xfe\nc\n")).lines())


def test_endless_line_does_not_fill_the_memory(write, monkeypatch):
    monkeypatch.setattr(text, "_LONGEST_LINE", 100)
    monkeypatch.setattr(text, "_BLOCK", 64)
    with pytest.raises(WorkloadError, match="line 1: expected lines of at most"):
        list(TextFile(write(b"x" * 1000)).lines())
    with pytest.raises(WorkloadError, match="line 31: expected lines of at most"):
        list(TextFile(write(b"row\n" * 30 + b"x" * 1000)).lines())
