"""YAML to a job, and everything that is wrong with a file told with its line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.errors import InvalidJob
from towline.loading import load_job, load_mapping
from towline.problems import LONGEST_PROBLEM, MOST_PROBLEMS
from towline.spec import JobSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRET = "hunter2hunter2"


def load(text: str | bytes, *, name: str | None = None, envs: Mapping[str, str] | None = None) -> JobSpec:
    data = text if isinstance(text, bytes) else dedent(text).encode()
    return load_job(data, "job.yaml", name=name, envs=envs)


def problems(text: str | bytes, *, name: str | None = None, envs: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidJob) as refused:
        load(text, name=name, envs=envs)
    return refused.value.problems


def only_problem(text: str | bytes) -> str:
    (only,) = problems(text)
    return only


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_a_job(path: Path) -> None:
    spec = load_job(path.read_bytes(), path.name)
    assert JobSpec.parse(spec.to_input()) == spec


def test_the_example_of_a_restart_says_what_skypilots_does() -> None:
    spec = load_job((EXAMPLES / "restart.yaml").read_bytes(), "examples/restart.yaml")
    first = {"ports": ["8080"], "cpus": "2+", "job_recovery": {"max_restarts_on_errors": 1}}
    assert spec.to_input() == {
        "name": "restart",
        "tasks": [
            {"name": "restart-0", "run": "exit 1", "resources": first},
            {"name": "restart-1", "run": "exit 0"},
        ],
    }
    assert spec.tasks[0].resources.job_recovery.max_restarts_on_errors == 1
    assert spec.tasks[1].resources.job_recovery.max_restarts_on_errors == 0


def test_all_problems_of_all_documents_are_told_at_once_in_the_order_of_the_file() -> None:
    told = problems(
        """\
        name: j
        ---
        run: 5
        resources:
          cpu: 2
          job_recovery:
            max_restarts_on_errors: -1
        ---
        # nothing to do here
        envs:
          A: x
          A: y
        nmae: b
        ---
        workdir: .
        run: true
        """
    )
    assert told == [
        "job.yaml:3: tasks[0].run: must be a string of commands, not a number; quote it, or begin it with |",
        "job.yaml:5: tasks[0].resources.cpu: unknown key; did you mean cpus?",
        "job.yaml:7: tasks[0].resources.job_recovery.max_restarts_on_errors: must be from 0 to 100000, not -1",
        "job.yaml:10: tasks[1]: has neither run nor setup, so there is nothing to do; add run",
        "job.yaml:12: tasks[1].envs.A: is given twice, first in line 11; remove one",
        "job.yaml:13: tasks[1].nmae: unknown key; did you mean name?",
        "job.yaml:15: tasks[2].workdir: is not supported in this version; remove it",
        "job.yaml:16: tasks[2].run: must be a string of commands, not a boolean; quote it, or begin it with |",
    ]


def test_there_are_never_endlessly_many_problems() -> None:
    told = problems("run: x\n" + "".join(f"k{number}: 1\nk{number}: 2\n" for number in range(200)))
    assert len(told) == MOST_PROBLEMS
    assert told[-1] == "and more problems; mend these first"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("run: x\n\tsetup: y\n", "job.yaml:2: a tab cannot indent in YAML; use spaces"),
        ("resources:\n\tcpus: 1\n", "job.yaml:2: a tab cannot indent in YAML; use spaces"),
        ("run: x: y\n", "job.yaml:1: YAML cannot be read: mapping values are not allowed in this context"),
        ('name: a\nrun: "x\n\n', "begun in line 2"),
        (b"run: x\nname: \xff\n", "job.yaml:2: is not UTF-8 text; save the file as UTF-8"),
        ("run: x\n".encode("utf-16"), "job.yaml:1: is not UTF-8 text; save the file as UTF-8"),
        (b"run: x\nname: a\x00b\n", "job.yaml:2: holds a control character (U+0000)"),
        (b"run: x\n# \x07\n", "job.yaml:2: holds a control character (U+0007)"),
        ("run: x\nenvs: [\n", "job.yaml:3: YAML cannot be read"),
        ("run: *missing\n", "job.yaml:1: found an alias without an anchor"),
        ("[" * 50_000, "job.yaml:1: "),
        ("- " * 50_000, "job.yaml:1: "),
        ("? " * 50_000, "job.yaml:1: "),
        ("just text", "job.yaml:1: tasks[0]: must be a mapping, not a string"),
        ("run: x\n---\n- a\n", "job.yaml:3: tasks[1]: must be a mapping, not a list"),
        ("run: x\n[a, b]: c\n", "job.yaml:2: tasks[0]: a key must be a string, not a list or mapping"),
        ("run: x\nnum_nodes: !!bool maybe\n", "job.yaml:2: tasks[0].num_nodes: cannot be read as bool; quote it"),
        ('run: x\nnum_nodes: !!int ""\n', "job.yaml:2: tasks[0].num_nodes: cannot be read as int; quote it"),
    ],
)
def test_a_text_that_is_no_yaml_is_told_with_its_line(text: str | bytes, told: str) -> None:
    line = only_problem(text)
    assert line.startswith("job.yaml:")
    assert told in line


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nrun: !!python/object/apply:os.system [id]\n",
        "name: a\nrun: !!python/name:os.system x\n",
        "name: a\n!!python/name:os.system run: x\n",
        "name: a\nresources: !!python/object:os.x {}\nrun: x\n",
        "name: a\nrun: !!binary aGk=\n",
        "name: a\nresources: !!set {}\nrun: x\n",
        "name: a\nrun: !mine x\n",
    ],
)
def test_a_tag_that_would_build_an_object_is_refused_with_its_line(text: str) -> None:
    lines = [line for line in problems(text) if "is not allowed; remove it" in line]
    assert len(lines) == 1
    assert lines[0].startswith(("job.yaml:2: ", "job.yaml:3: "))


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {b: 1}\nrun: x\nresources:\n  cpus: 1\n  cpus: 2\n",
        "run: x\nresources:\n  any_of:\n    - labels: {a: b,\n        a: c}\n",
        "name: a\n---\nrun: x\n---\nrun: y\nrun: z\n",
        "run: x\n? run\n: y\n",
        'run: x\n"run": y\n',
        "name: j\nname: k\n---\nrun: x\n",
    ],
)
def test_a_key_given_twice_is_refused_wherever_it_is(text: str) -> None:
    assert any("is given twice, first in line" in line for line in problems(text))


def test_aliases_that_multiply_are_refused() -> None:
    levels = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))
    assert "are aliases multiplied?" in only_problem(f"x0: &x0 [a]\n{levels}\nrun: x\n")
    large = "\n".join(f"  A{number}: *s" for number in range(5000))
    assert "are aliases multiplied?" in only_problem(f"setup: &s {'y' * 100_000}\nenvs:\n{large}\n")


@pytest.mark.parametrize("text", ["run: x\nenvs: &a {<<: *a}\n", "run: &a [*a]\n", "&a x: *a\nb: &b {c: *b}\n"])
def test_an_alias_within_itself_is_refused(text: str) -> None:
    assert any("within itself" in line or "unknown key" in line for line in problems(text))


def test_anchors_and_merge_keys_work() -> None:
    spec = load(
        """\
        envs: &common
          A: 007
          B: on
        run: x
        resources:
          any_of:
            - &base {cpus: 2, use_spot: true}
            - <<: *base
              cpus: 4+
            - <<: [{cpus: 8}, *base]
        """
    )
    shown = [(each.cpus, each.use_spot) for each in spec.tasks[0].resources.alternatives()]
    assert shown == [("2", True), ("4+", True), ("8", True)]


def test_a_key_of_ones_own_goes_before_a_merged_one_wherever_it_stands() -> None:
    for text in ("{A: own, <<: {A: merged, B: b}}", "{<<: {A: merged, B: b}, A: own}"):
        assert load(f"run: x\nenvs: {text}\n").tasks[0].envs == {"A": "own", "B": "b"}


def test_two_merge_keys_in_one_mapping_are_refused() -> None:
    assert "<< is given twice" in only_problem("run: x\nenvs: {<<: {A: a}, <<: {B: b}}\n")


def test_the_line_of_a_wrong_own_key_is_its_own_though_a_merge_follows() -> None:
    text = "run: x\nresources:\n  cpus: many\n  <<: {cpus: 1}\n"
    assert only_problem(text).startswith("job.yaml:3: tasks[0].resources.cpus: ")


def test_values_of_envs_stay_as_they_are_written() -> None:
    spec = load(
        """\
        run: x
        envs:
          A: 007
          B: 'True'
          C: on
          D: 1.0
          E: 2024-01-01
          F: 0x1F
          G: 1_000
          H: "null"
          I: ''
          J: 12:30:45
          K: .inf
          L: yes
          M: 1e3
          N: !!str 5
        """
    )
    written = [
        "007",
        "True",
        "on",
        "1.0",
        "2024-01-01",
        "0x1F",
        "1_000",
        "null",
        "",
        "12:30:45",
        ".inf",
        "yes",
        "1e3",
        "5",
    ]
    assert list(spec.tasks[0].envs.values()) == written


@pytest.mark.parametrize("written", ["", "~", "null", "Null", "!!null x"])
def test_an_env_without_a_value_must_be_given(written: str) -> None:
    text = f"run: x\nenvs:\n  TOKEN: {written}\n"
    assert only_problem(text) == "job.yaml:3: tasks[0].envs.TOKEN: has no value; give it with --env TOKEN=VALUE"
    assert load(text, envs={"TOKEN": "t"}).tasks[0].envs == {"TOKEN": "t"}


def test_envs_that_are_given_go_before_those_of_every_task() -> None:
    spec = load("run: x\nenvs: {A: a, B: b}\n---\nrun: y\n---\nrun: z\nenvs:\n", envs={"A": "given"})
    assert [task.envs for task in spec.tasks] == [{"A": "given", "B": "b"}, {"A": "given"}, {"A": "given"}]


def test_what_is_wrong_with_arguments_is_told_once_and_beside_the_file() -> None:
    told = problems("run: 5\n---\nrun: y\n", name="no good", envs={"1A": "x", "B": "\udcff", "TOWLINE_C": "x"})
    assert [line.split(": ")[0] for line in told] == ["--env 1A", "--env B", "--env TOWLINE_C", "--name", "job.yaml:1"]


@pytest.mark.parametrize("written", [f"*{SECRET}", f"!{SECRET}", f"!{SECRET} x", f"[{SECRET}]", f'"{SECRET}\\0"'])
def test_the_value_of_an_env_is_never_told(written: str) -> None:
    told = problems(f"run: x\nenvs:\n  TOKEN: {written}\n")
    assert SECRET not in "\n".join(told)


@pytest.mark.parametrize(
    ("text", "name", "called"),
    [
        ("run: x\n", None, "job"),
        ("name: solo\nrun: x\n", None, "solo"),
        ("name: first\nrun: x\n---\nrun: y\n", None, "job"),
        ("name: header\n---\nname: solo\nrun: x\n", None, "header"),
        ("name: header\nexecution: serial\n---\nrun: x\n", None, "header"),
        ("name:\nexecution:\n---\nname: solo\nrun: x\n", None, "solo"),
        ("name: header\n---\nrun: x\n", "given", "given"),
    ],
)
def test_the_job_is_called_by_the_first_that_says_a_name(text: str, name: str | None, called: str) -> None:
    assert load(text, name=name).name == called


@pytest.mark.parametrize(
    ("source", "called"),
    [
        ("dir/my job (1).yaml", "my-job-1"),
        ("-", "job"),
        ("<stdin>", "stdin"),
        (".hidden.yaml", "hidden"),
        ("é.yaml", "job"),
        ("a" * 300 + ".yaml", "a" * 64),
    ],
)
def test_a_name_from_a_file_is_made_safe(source: str, called: str) -> None:
    assert load_job(b"run: x\n", source).name == called


@pytest.mark.parametrize("written", ["0", "''", "[a]", "a b", "true"])
def test_a_wrong_name_of_the_job_is_told_where_it_is(written: str) -> None:
    assert only_problem(f"# the job\nname: {written}\n---\nrun: x\n").startswith("job.yaml:2: name: must be ")


def test_another_execution_is_refused_by_name() -> None:
    told = only_problem("name: a\nexecution: parallel\n---\nrun: x\n")
    assert told == "job.yaml:2: execution: 'parallel' is not supported in this version; write serial, or remove it"


@pytest.mark.parametrize("text", ["", "\n\n", "---\n---\n", "# only words\n", "~\n", "name: a\n", "{}\n---\n"])
def test_an_empty_job_is_refused(text: str) -> None:
    assert only_problem(text).startswith("job.yaml:1: ")


def test_empty_documents_are_skipped_and_lines_stay_right() -> None:
    assert len(load("---\n---\nrun: x\n---\n# words\n---\nrun: y\n---\n").tasks) == 2
    assert only_problem("---\n---\nrun: x\n---\n---\nrun: 1\n").startswith("job.yaml:6: tasks[1].run: ")


@pytest.mark.parametrize("section", ["resources:", "envs:", "setup:", "name:", "resources: {job_recovery: }"])
def test_an_empty_section_is_the_default(section: str) -> None:
    assert load(f"run: x\n{section}\n") == load("run: x\n")


def test_a_byte_order_mark_and_the_line_ends_of_windows_change_nothing() -> None:
    unix = "name: a\n---\nrun: |\n  one\n  two\n"
    windows = b"\xef\xbb\xbf" + unix.replace("\n", "\r\n").encode()
    assert load(windows) == load(unix)
    assert load(windows).tasks[0].run == "one\ntwo\n"


def test_scripts_of_400_kilobytes_are_taken_whole() -> None:
    line = "echo 'ü ☃ \\ \" $x'\n"
    script = line * (400_000 // len(line.encode()))
    text = "".join(f"{key}: |\n" + "".join(f"  {line}" for line in script.splitlines(True)) for key in ("setup", "run"))
    task = load(text).tasks[0]
    assert task.setup == task.run == script


def test_a_file_too_large_to_be_a_job_is_refused() -> None:
    assert "is too large" in only_problem(b"#" * (5 * 1024 * 1024))


def test_a_mapping_is_read_as_strictly_as_a_job() -> None:
    assert load_mapping(b"lab:\n  hosts: [a]\n", "pools.yaml") == {"lab": {"hosts": ["a"]}}
    assert load_mapping(b"# nothing\n", "pools.yaml") == {}
    with pytest.raises(InvalidJob, match=r"pools.yaml:2: a: is given twice, first in line 1"):
        load_mapping(b"a: 1\na: 2\n", "pools.yaml")
    with pytest.raises(InvalidJob, match=r"pools.yaml:1: must be one mapping"):
        load_mapping(b"- a\n", "pools.yaml")


_PIECES = st.sampled_from(
    [
        "run: x", "name: a", "---", "- ", "  ", "\t", "&a ", "*a", "<<: ", "{", "}", "[", "]", ": ", "envs:",
        "\n", "\n  ",
        "!!python/name:os.system ", "!!int ", "!!bool ", "!!float ", "!!timestamp ", "!!null ", "!!set ", "!x ",
        "? ", "'",
        '"', "|\n", ">\n", "#", "%YAML 1.1\n", "%TAG ! x:\n", "resources:", "cpus: ", "any_of:",
        "0x", "1:2", ".nan", "~", "\r", "\x85", "\u2028",
        "\x00", "é", "=", "0b", "1_", "on", "@", "`", "\\ud800",
    ]
)  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(st.lists(_PIECES | st.text(max_size=3), max_size=25).map("".join) | st.binary(max_size=30))
def test_any_text_is_a_job_or_refused_with_lines(text: str | bytes) -> None:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    try:
        spec = load_job(data, "job.yaml")
    except InvalidJob as refused:
        for line in refused.problems[: MOST_PROBLEMS - 1]:
            place, line_number, words = line.split(":", 2)
            assert place == "job.yaml"
            assert 1 <= int(line_number) <= len(data) + 1
            assert words.strip()
            assert len(line) <= LONGEST_PROBLEM + 30
            assert line.isprintable()
        return
    assert JobSpec.parse(spec.to_input()) == spec
