"""The bytes of nodes on a stream."""

from __future__ import annotations

from pathlib import Path

from towline.cli.output import LONGEST_HELD_LINE, Output

ANY = bytes(range(256)) + b"\r\n\xff\xfe no newline at the end"


class Written:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w")
        self.output = Output(self._file)

    @property
    def bytes(self) -> bytes:
        return self._path.read_bytes()


def test_the_bytes_of_one_node_are_untouched(tmp_path: Path) -> None:
    written = Written(tmp_path / "out")
    written.output.write(0, ANY, several=False)
    written.output.write(0, ANY, several=False)
    written.output.end(0)
    assert written.bytes == ANY + ANY


def test_of_several_nodes_each_line_names_its_node(tmp_path: Path) -> None:
    written = Written(tmp_path / "out")
    written.output.write(0, b"a\nb\n", several=True)
    written.output.write(1, b"c\n\n", several=True)
    assert written.bytes == b"(node 0) a\n(node 0) b\n(node 1) c\n(node 1) \n"


def test_lines_of_several_nodes_are_never_mixed(tmp_path: Path) -> None:
    written = Written(tmp_path / "out")
    written.output.write(0, b"first ", several=True)
    written.output.write(1, b"other\n", several=True)
    written.output.write(0, b"half\n", several=True)
    assert written.bytes == b"(node 1) other\n(node 0) first half\n"


def test_an_unfinished_line_is_shown_at_the_end_of_its_log(tmp_path: Path) -> None:
    written = Written(tmp_path / "out")
    written.output.write(0, b"no newline", several=True)
    written.output.end(1)
    assert written.bytes == b""
    written.output.end(0)
    assert written.bytes == b"(node 0) no newline\n"


def test_a_line_too_long_to_be_held_is_shown_in_pieces(tmp_path: Path) -> None:
    written = Written(tmp_path / "out")
    piece = b"x" * (LONGEST_HELD_LINE // 2 + 1)
    written.output.write(0, piece, several=True)
    assert written.bytes == b""
    written.output.write(0, piece, several=True)
    assert written.bytes == b"(node 0) " + piece * 2 + b"\n"
