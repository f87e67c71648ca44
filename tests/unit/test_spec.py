"""What a valid job is, and that whatever else a client sends is refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from towline.errors import InvalidJob
from towline.providers.requests import requests
from towline.resources import Resources
from towline.spec import LARGEST_JOB, LARGEST_SCRIPT, MOST_TASKS, JobSpec
from towline.task_envs import LARGEST_ENV

SECRET = "hunter2hunter2"


def job(*tasks: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {**keys, "tasks": list(tasks)}


def task(**resources: Any) -> dict[str, Any]:
    return job({"run": "true", "resources": resources})


def resources(**keys: Any) -> Resources:
    return JobSpec.parse(task(**keys)).tasks[0].resources


def problems(raw: object) -> list[str]:
    with pytest.raises(InvalidJob) as refused:
        JobSpec.parse(raw)
    return refused.value.problems


def resource_problem(**keys: Any) -> str:
    (only,) = problems(task(**keys))
    return only.removeprefix("tasks[0].resources.")


def test_an_unknown_key_is_told_with_its_path_and_the_nearest_right_one() -> None:
    assert problems(task(cpu=2)) == ["tasks[0].resources.cpu: unknown key; did you mean cpus?"]


def test_all_problems_are_told_at_once() -> None:
    raw = job({"run": 5, "resources": {"cpu": 2, "ports": 0}}, {"nmae": "x"}, name="no good", extra=1)
    places = sorted(line.split(": ")[0] for line in problems(raw))
    assert places == [
        "extra",
        "name",
        "tasks[0].resources.cpu",
        "tasks[0].resources.ports",
        "tasks[0].run",
        "tasks[1]",
        "tasks[1].nmae",
    ]


@pytest.mark.parametrize(
    ("key", "value", "stored"),
    [
        ("cpus", 2, "2"),
        ("cpus", "2+", "2+"),
        ("cpus", 4.0, "4"),
        ("cpus", "0.5+", "0.5+"),
        ("memory", "16+", "16+"),
        ("memory", "16GB+", "16+"),
        ("memory", 32, "32"),
        ("memory", "512MB", "0.5"),
        ("disk_size", 100, "100"),
        ("disk_size", "100GB", "100"),
        ("disk_size", "1TB", "1024"),
        ("accelerators", "A100", ["A100:1"]),
        ("accelerators", "A100:8", ["A100:8"]),
        ("accelerators", {"A100": 8}, ["A100:8"]),
        ("accelerators", {"A100": None}, ["A100:1"]),
        ("accelerators", {"A100:4": None, "V100:2": None}, ["A100:4", "V100:2"]),
        ("accelerators", ["A100:4", "A100:8", {"H100": 1}], ["A100:4", "A100:8", "H100:1"]),
        ("ports", 8080, ["8080"]),
        ("ports", "8080-8090", ["8080-8090"]),
        ("ports", [22, "80", "90-90"], ["22", "80", "90"]),
        ("infra", "SSH/Lab", "ssh/Lab"),
        ("infra", "local", "local"),
        ("labels", {"team": "ml"}, {"team": "ml"}),
        ("max_hourly_cost", 2, 2.0),
        ("priority", -5, -5),
        ("autostop", 10, 10),
        ("autostop", True, True),
        ("autostop", {"idle_minutes": 5, "down": True}, {"idle_minutes": 5, "down": True}),
        ("image_id", {"us-east-1": "ami-1"}, {"us-east-1": "ami-1"}),
    ],
)
def test_each_notation_of_skypilot_has_one_form_and_keeps_it(key: str, value: Any, stored: Any) -> None:
    once = resources(**{key: value})
    assert getattr(once, key) == stored
    assert resources(**once.to_input()) == once


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("cpus", "many", "must be a number or a string such as '4+', not 'many'"),
        ("cpus", True, "not a boolean"),
        ("cpus", 0, "must be more than 0"),
        ("cpus", float("nan"), "must be more than 0"),
        pytest.param("cpus", 10**5000, "not a number", id="a number of 5001 digits"),
        ("cpus", "4GB", "not '4GB'"),
        ("memory", "16 horses", "must be in MB, GB or TB"),
        ("memory", "9" * 400, "not '999"),
        ("disk_size", "100+", "must be a whole number of GB"),
        ("disk_size", 0.5, "must be a whole number of GB"),
        ("accelerators", {"A100": 0}, "must be more than 0"),
        ("accelerators", {"A100": float("inf")}, "must be more than 0"),
        ("accelerators", "A100;rm", "must be such as A100:8"),
        ("accelerators", "tpu-v4-8", "TPUs are not supported in this version"),
        ("ports", 70000, "must be a port from 1 to 65535"),
        ("ports", "9-8", "must be a port"),
        ("ports", "٣٣", "must be a port"),
        ("labels", {"a": 1}, "must map a to a string, not a number; quote it"),
        ("use_spot", "yes", "must be true or false, not a string"),
        ("priority", 5000, "must be from -1000 to 1000"),
        ("autostop", "soon", "must be whole minutes"),
        ("autostop", {"idle": 1}, "'idle' is no key of autostop"),
        ("image_id", "docker:ubuntu", "docker images are not supported in this version"),
        ("image_id", {"us-east-1": "docker:ubuntu"}, "docker images are not supported in this version"),
        ("max_hourly_cost", float("nan"), "must be more than 0"),
        ("infra", "local/here", "must be local, ssh or ssh/POOL"),
        ("infra", "ssh/../etc", "must be local, ssh or ssh/POOL"),
        ("infra", "aws/us-east-1", "provider aws is not available in this version; usable: local, ssh/POOL"),
        ("cloud", "GCP", "provider GCP is not available in this version; usable: local, ssh/POOL"),
        ("any_of", [], "needs at least one alternative"),
        ("any_of", {"cpus": 1}, "must be a list, not a mapping"),
        ("job_recovery", 3, "must be the name of a strategy"),
        ("job_recovery", "EAGER", "must be one of EAGER_NEXT_REGION, FAILOVER, NO_RECOVERY, not 'EAGER'"),
    ],
)
def test_a_wrong_resource_is_told_what_it_must_be(key: str, value: Any, told: str) -> None:
    assert told in resource_problem(**{key: value})


@pytest.mark.parametrize("said", [None, "", "none", "None", 0])
def test_no_restarts_can_be_said_in_every_way(said: Any) -> None:
    assert resources(job_recovery={"max_restarts_on_errors": said}).job_recovery.max_restarts_on_errors == 0


@pytest.mark.parametrize("said", [-1, 1.0, True, "3", 100_001, [1]])
def test_a_number_of_restarts_is_a_whole_number_from_0_on(said: Any) -> None:
    told = resource_problem(job_recovery={"max_restarts_on_errors": said})
    assert told.startswith("job_recovery.max_restarts_on_errors: must be")
    assert "from 0 to 100000" in told


@pytest.mark.parametrize("said", ["failover", " FAILOVER ", {"strategy": "Failover"}])
def test_the_case_of_a_strategy_does_not_matter(said: Any) -> None:
    assert resources(job_recovery=said).job_recovery.strategy == "FAILOVER"


@pytest.mark.parametrize("said", [None, "none", "", {}, {"strategy": None}, {"strategy": "none"}])
def test_no_strategy_is_the_default_one(said: Any) -> None:
    assert resources(job_recovery=said).job_recovery.strategy == "EAGER_NEXT_REGION"


@pytest.mark.parametrize(("said", "stored"), [(3, [3]), ([1, 255, 1], [1, 255]), (None, [])])
def test_exit_codes_are_one_or_a_list(said: Any, stored: list[int]) -> None:
    assert resources(job_recovery={"recover_on_exit_codes": said}).job_recovery.recover_on_exit_codes == stored


@pytest.mark.parametrize("said", [0, 256, True, "1", [3, -1], 1.5])
def test_an_exit_code_is_from_1_to_255(said: Any) -> None:
    assert "from 1 to 255" in resource_problem(job_recovery={"recover_on_exit_codes": said})


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"job_recovery": "FAILOVER"}, "tasks[0].job_recovery: unknown key here; it belongs under resources"),
        (
            {"resources": {"max_restarts_on_errors": 1}},
            "tasks[0].resources.max_restarts_on_errors: unknown key here; it belongs under resources.job_recovery",
        ),
        ({"resources": {"setup": "x"}}, "tasks[0].resources.setup: unknown key here; it belongs to the task"),
    ],
)
def test_a_key_in_the_wrong_place_is_told_where_it_belongs(raw: dict[str, Any], told: str) -> None:
    (only,) = problems(job({"run": "true", **raw}))
    assert only.startswith(told)


@pytest.mark.parametrize(
    "key",
    [
        "workdir", "file_mounts", "storage_mounts", "service", "config", "experimental", "inputs", "outputs",
        "event_callback", "pool", "volumes",
    ],
)  # fmt: skip
def test_a_key_of_skypilot_that_is_not_supported_is_refused_by_name(key: str) -> None:
    assert problems(job({"run": "true", key: None})) == [f"tasks[0].{key}: is not supported in this version; remove it"]


@pytest.mark.parametrize(
    "key", ["disk_tier", "network_tier", "autoscaling", "tpu_vm", "accelerator_args", "local_disk"]
)
def test_a_resource_of_skypilot_that_is_not_supported_is_refused_by_name(key: str) -> None:
    assert resource_problem(**{key: "x"}) == f"{key}: is not supported in this version; remove it"


@pytest.mark.parametrize(("said", "told"), [(2, "several nodes are not supported"), (0, "must be 1"), (True, "whole")])
def test_one_node_is_all_there_is(said: Any, told: str) -> None:
    (only,) = problems(job({"run": "true", "num_nodes": said}))
    assert only.startswith("tasks[0].num_nodes: ")
    assert told in only


def test_a_key_without_a_value_counts_as_absent() -> None:
    bare = {"run": "true", "name": None, "num_nodes": None, "envs": None, "setup": None}
    empty = dict.fromkeys(Resources.model_fields)
    plain = JobSpec.parse(job({"run": "true"}, name="a"))
    assert JobSpec.parse(job({**bare, "resources": None}, name="a")) == plain
    assert JobSpec.parse(job({**bare, "resources": empty}, name="a")) == plain


def test_alternatives_are_laid_over_the_rest_in_their_order() -> None:
    wishes = resources(cpus="2+", use_spot=True, ordered=[{"infra": "ssh/lab"}, {"cpus": 8, "use_spot": None}])
    shown = [(each.infra, each.cpus, each.use_spot) for each in wishes.alternatives()]
    assert shown == [("ssh/lab", "2+", True), (None, "8", True)]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"infra": "local", "region": "x"}, "region: cannot stand beside infra"),
        ({"any_of": [{"cpus": 1}], "ordered": [{"cpus": 2}]}, "ordered: cannot stand beside any_of; choose one"),
        ({"any_of": [{"any_of": [{"cpus": 1}]}]}, "any_of[0].any_of: cannot be nested"),
        ({"any_of": [{"cpu": 1}]}, "any_of[0].cpu: unknown key; did you mean cpus?"),
        ({"infra": "local", "any_of": [{"cloud": "ssh"}]}, "any_of[0].cloud: cannot stand beside infra"),
        ({"cloud": "ssh", "any_of": [{"infra": "local"}]}, "any_of[0].infra: cannot stand beside cloud"),
        ({"region": "us-east-1"}, "region: needs cloud beside it; usable: local, ssh/POOL"),
        ({"cloud": "local", "zone": "a"}, "zone: means nothing for local nodes"),
        ({"any_of": [{"job_recovery": "FAILOVER"}, {}]}, "any_of[1].job_recovery: holds for the whole task"),
        (
            {"job_recovery": "FAILOVER", "any_of": [{"job_recovery": "NO_RECOVERY"}]},
            "any_of[0].job_recovery: holds for the whole task, so it must be equal in every alternative",
        ),
    ],
)
def test_wishes_that_do_not_fit_together_are_refused(keys: dict[str, Any], told: str) -> None:
    assert resource_problem(**keys).startswith(told)


def test_a_job_recovery_that_all_alternatives_say_alike_is_the_tasks() -> None:
    said = {"strategy": "failover", "max_restarts_on_errors": 2}
    wishes = resources(any_of=[{"cpus": 1, "job_recovery": said}, {"cpus": 2, "job_recovery": said}])
    assert wishes.job_recovery.max_restarts_on_errors == 2
    assert [each.job_recovery for each in wishes.alternatives()] == [wishes.job_recovery] * 2


def test_cloud_and_region_ask_for_a_pool_as_infra_does() -> None:
    older, newer = resources(cloud="SSH", region="lab"), resources(infra="ssh/lab")
    assert [each.infra for each in requests(older)] == [each.infra for each in requests(newer)] == ["ssh/lab"]


def test_every_accelerator_of_every_alternative_is_a_request() -> None:
    wishes = resources(memory="16GB+", disk_size="1TB", any_of=[{"accelerators": ["A100:4", "A100:8"]}, {"cpus": 2}])
    asked = requests(wishes)
    assert [each.accelerators for each in asked] == [(("A100", 4.0),), (("A100", 8.0),), ()]
    assert {(each.memory_gib, each.memory_or_more, each.disk_gib) for each in asked} == {(16.0, True, 1024)}
    assert (asked[2].cpus, asked[2].cpus_or_more) == (2.0, False)
    assert wishes.gpus_per_node == 4


def test_unnamed_tasks_are_called_after_job_and_index() -> None:
    spec = JobSpec.parse(job({"run": "a"}, {"name": "b", "run": "b"}, name="j"))
    assert [each.name for each in spec.tasks] == ["j-0", "b"]


def test_a_job_without_a_name_is_called_after_its_only_task() -> None:
    assert JobSpec.parse(job({"name": "solo", "run": "a"})).name == "solo"
    assert JobSpec.parse(job({"run": "a"})).name == "job"


def test_names_that_are_made_fit_and_never_repeat_a_given_one() -> None:
    long = JobSpec.parse(job({"run": "a"}, {"run": "b"}, name="n" * 64))
    assert [each.name for each in long.tasks] == ["n" * 62 + "-0", "n" * 62 + "-1"]
    assert JobSpec.parse(long.to_input()) == long
    told = problems(job({"name": "j-1", "run": "a"}, {"run": "b"}, name="j"))
    assert told == ["tasks[1]: has no name and would be called 'j-1', as another task is; give it a name"]


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "a/b", "n" * 65, "é", "..", 7, True])
def test_a_name_that_is_not_safe_is_refused(name: Any) -> None:
    (only,) = problems(job({"name": name, "run": "a"}, name="j"))
    assert only.startswith("tasks[0].name: must be")


def test_two_tasks_of_one_name_are_refused() -> None:
    told = problems(job({"name": "a", "run": "x"}, {"name": "a", "run": "y"}))
    assert told == ["tasks[1].name: task 1 is called 'a' too; names must differ"]


@pytest.mark.parametrize("said", [{}, {"run": ""}, {"run": " \n", "setup": None}])
def test_a_task_with_nothing_to_do_is_refused(said: dict[str, Any]) -> None:
    assert problems(job(said)) == ["tasks[0]: has neither run nor setup, so there is nothing to do; add run"]


def test_a_task_with_setup_only_is_a_task() -> None:
    assert JobSpec.parse(job({"setup": "true"})).tasks[0].run is None


@pytest.mark.parametrize("script", [5, 1.5, True, ["a"], {"a": 1}])
def test_a_script_that_is_no_string_is_refused_with_a_hint(script: Any) -> None:
    (only,) = problems(job({"run": script}))
    assert only.startswith("tasks[0].run: must be a string of commands, not a")
    assert "quote it" in only


def test_scripts_of_400_kilobytes_are_taken_and_larger_than_the_limit_refused() -> None:
    large = JobSpec.parse(job({"setup": "s" * 400_000, "run": "r" * 400_000}))
    assert len(large.tasks[0].run or "") == 400_000
    (only,) = problems(job({"run": "é" * (LARGEST_SCRIPT // 2 + 1)}))
    assert only.startswith(f"tasks[0].run: is too large: {LARGEST_SCRIPT + 2} bytes, at most {LARGEST_SCRIPT}")


def test_a_job_that_temporal_could_not_carry_is_refused() -> None:
    (only,) = problems(job(*({"run": "r" * 500_000} for _ in range(4))))
    assert only.startswith("the job is too large: ")
    assert str(LARGEST_JOB) in only
    (only,) = problems(job(*({"run": "x"} for _ in range(MOST_TASKS + 1))))
    assert only.startswith(f"tasks: a job has at most {MOST_TASKS} tasks")


def test_an_env_as_large_as_linux_takes_it_is_taken_and_a_byte_more_refused() -> None:
    fits = "x" * (LARGEST_ENV - len("NAME="))
    JobSpec.parse(job({"run": "a", "envs": {"NAME": fits}}))
    (only,) = problems(job({"run": "a", "envs": {"NAME": fits + "x"}}))
    assert only.startswith(f"tasks[0].envs.NAME: is too large: {LARGEST_ENV + 1} bytes")


@pytest.mark.parametrize("name", ["1A", "", "A-B", "A\n", "É", "TOWLINE_X", "SKYPILOT_NODE_RANK", "UID"])
def test_an_env_name_that_cannot_be_set_is_refused(name: str) -> None:
    assert len(problems(job({"run": "a", "envs": {name: "x"}}))) == 1


@pytest.mark.parametrize(
    "value", [f"{SECRET}\0", f"{SECRET}\ud800", [SECRET], {SECRET: SECRET}, 4242424242, SECRET * 20000]
)
def test_the_value_of_an_env_is_never_told(value: Any) -> None:
    told = "\n".join(problems(job({"run": "a", "envs": {"TOKEN": value}})))
    assert "tasks[0].envs.TOKEN" in told
    assert "4242" not in told
    assert SECRET not in told.replace(f"TOKEN.{SECRET}", "")


def test_an_env_without_a_value_says_how_to_give_it() -> None:
    told = problems(job({"run": "a", "envs": {"TOKEN": None}}))
    assert told == ["tasks[0].envs.TOKEN: has no value; give it with --env TOKEN=VALUE"]
