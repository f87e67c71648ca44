"""YAML text to plain values, strictly, with the line of every key: no duplicate keys, no tags that make objects, no
aliases that multiply. The only door to PyYAML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from towline.errors import InvalidJob
from towline.problems import Path, Problem, quote

LARGEST_FILE = 4 * 1024 * 1024
MOST_NODES = 100_000
DEEPEST = 30

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STANDARD = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({_STANDARD + "str", _STANDARD + "timestamp"})
_NULL = _STANDARD + "null"
_VALUE_TAGS = frozenset({_NULL, *(_STANDARD + kind for kind in ("int", "float", "bool"))})
_MERGE = _STANDARD + "merge"
_VARIABLES: tuple[Path, ...] = (("envs",), ("secrets",))


@dataclass
class Document:
    """One document: its plain value (None: nothing in it), the lines its key paths are in, and what is wrong with its
    text."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[tuple[int, Problem]] = field(default_factory=list)

    def line_of(self, path: Path) -> int:
        """The line of the longest part of the path that is in the text."""
        return next(self.lines[path[:cut]] for cut in range(len(path), -1, -1) if path[:cut] in self.lines)


def read(data: bytes, source: str) -> list[Document]:
    """The documents in the YAML `data`. Raises InvalidJob where there can be none."""
    text = _text(data, source)
    budget = _Budget(source)
    return [_Reader(budget).document(node) for node in _composed(text, source)]


def _text(data: bytes, source: str) -> str:
    if len(data) > LARGEST_FILE:
        raise InvalidJob([f"{source}:1: is too large: {len(data)} bytes, at most {LARGEST_FILE}"])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidJob([f"{source}:{line}: is not UTF-8 text; save the file as UTF-8"]) from None
    return text.replace("\r\n", "\n")


def _composed(text: str, source: str) -> Iterator[yaml.Node]:
    try:
        yield from (node for node in yaml.compose_all(text, Loader=_Loader) if node is not None)
    except yaml.MarkedYAMLError as error:
        line, words = _syntax(error, text)
    except yaml.reader.ReaderError:
        line, words = _control_character(text)
    except yaml.YAMLError as error:
        line, words = 1, f"YAML cannot be read: {' '.join(str(error).split())}"
    except RecursionError:
        line, words = 1, "is nested too deeply"
    else:
        return
    raise InvalidJob([f"{source}:{line}: {words}"])


def _syntax(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    """PyYAML's words on one line; a tab, the commonest slip, in clearer ones."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return 1, f"YAML cannot be read: {error.problem or error}"
    lines = text.split("\n")
    indent = lines[mark.line][: mark.column + 1] if mark.line < len(lines) else ""
    if "\t" in indent and not indent.strip():
        return mark.line + 1, "a tab cannot indent in YAML; use spaces"
    problem = str(error.problem or error)
    if problem.startswith("found undefined alias"):  # its name may be a secret that begins with *
        return mark.line + 1, "found an alias without an anchor; quote the value if it begins with *"
    if problem.startswith("found duplicate anchor"):  # or one that begins with &
        return mark.line + 1, "found the same anchor twice; quote the value if it begins with &"
    begun = error.context_mark.line + 1 if error.context_mark else mark.line + 1
    context = f" {error.context}" if error.context else ""
    since = f" begun in line {begun}" if begun != mark.line + 1 else ""
    return mark.line + 1, f"YAML cannot be read: {problem}{context}{since}"


def _control_character(text: str) -> tuple[int, str]:
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    before = text[: found.start()] if found else ""
    shown = f" (U+{ord(found[0]):04X})" if found else ""
    return before.count("\n") + 1, f"holds a control character{shown}; remove it, or write it as an escape in quotes"


class _Budget:
    """How much the documents of one file may hold after aliases are followed."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._nodes = 0
        self._text = 0

    def spend(self, node: yaml.Node, depth: int) -> None:
        """Raises InvalidJob when there is too much."""
        self._nodes += 1
        self._text += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        if depth > DEEPEST:
            self._refuse(node, "is nested too deeply, or within itself")
        if self._nodes > MOST_NODES or self._text > LARGEST_FILE:
            self._refuse(node, "holds too many values; are aliases multiplied?")

    def _refuse(self, node: yaml.Node, words: str) -> None:
        raise InvalidJob([f"{self._source}:{node.start_mark.line + 1}: {words}"])


class _Reader:
    """One pass over the nodes of a document."""

    def __init__(self, budget: _Budget) -> None:
        self._budget = budget
        self._constructor = yaml.constructor.SafeConstructor()
        self._document = Document()

    def document(self, root: yaml.Node) -> Document:
        """The document below its root."""
        self._document.value = self._value(root, (), depth=0)
        return self._document

    def _value(self, node: yaml.Node, path: Path, depth: int) -> Any:
        self._budget.spend(node, depth)
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            self._refuse_tag(node, path, {_STANDARD + "map"})
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            self._refuse_tag(node, path, {_STANDARD + "seq"})
            return [self._value(item, (*path, index), depth + 1) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        merges = [pair for pair in node.value if pair[0].tag == _MERGE]
        for again, _ in merges[1:]:
            self._problem(again, path, "<< is given twice; give it a list, as in <<: [*a, *b]")
        merged = self._merge(merges[0][1], path, depth) if merges else {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = None if key_node.tag == _MERGE else self._key(key_node, path)
            if key is None:
                continue
            if key in own:
                first = self._document.lines[(*path, key)]
                self._problem(key_node, (*path, key), f"is given twice, first in line {first}; remove one")
                continue
            self._document.lines[(*path, key)] = key_node.start_mark.line + 1
            own[key] = self._value(value_node, (*path, key), depth + 1)
        return {**merged, **own}

    def _key(self, node: yaml.Node, path: Path) -> str | None:
        self._budget.spend(node, 0)
        if not isinstance(node, yaml.ScalarNode):
            self._problem(node, path, "a key must be a string, not a list or mapping")
            return None
        self._refuse_tag(node, path, _TEXT_TAGS | _VALUE_TAGS)
        return str(node.value)

    def _merge(self, node: yaml.Node, path: Path, depth: int) -> dict[str, Any]:
        """What `<<` brings in: a mapping, or a list of them, the first winning."""
        found: dict[str, Any] = {}
        for each in reversed(node.value) if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(each, yaml.MappingNode):
                found |= self._value(each, path, depth + 1)
            else:
                self._problem(each, path, "<< needs a mapping, or a list of mappings")
        return found

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        if node.tag in _VALUE_TAGS and (node.tag == _NULL or not _is_variable(path)):
            return self._plain(node, path)
        self._refuse_tag(node, path, _TEXT_TAGS | _VALUE_TAGS)
        return node.value  # in envs and secrets what is written counts: 007, on and 1.0 stay as they are

    def _plain(self, node: yaml.Node, path: Path) -> Any:
        try:
            return self._constructor.construct_object(node)
        except (ValueError, LookupError, yaml.YAMLError):
            self._problem(node, path, f"cannot be read as {node.tag.removeprefix(_STANDARD)}; quote it")
            return node.value

    def _refuse_tag(self, node: yaml.Node, path: Path, allowed: frozenset[str] | set[str]) -> None:
        if node.tag not in allowed:
            hidden = path[:1] in _VARIABLES  # a secret that begins with ! reads as a tag
            shown = "a tag" if hidden else f"the tag {quote(node.tag.replace(_STANDARD, '!!'))}"
            self._problem(node, path, f"{shown} is not allowed; remove it, or quote the value")

    def _problem(self, node: yaml.Node, path: Path, text: str) -> None:
        self._document.problems.append((node.start_mark.line + 1, Problem(path, text)))


def _is_variable(path: Path) -> bool:
    return len(path) == 2 and path[:1] in _VARIABLES
