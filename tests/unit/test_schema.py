"""The schema that editors use says of each document what loading says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from towline.contract import SealedSecret
from towline.errors import InvalidJob
from towline.laying_over import SecretSource
from towline.loading import load_job
from towline.schema import json_schema

EXAMPLES = Path(__file__).parents[2] / "examples"

VALID = [
    "run: x",
    "setup: x",
    "run: x\nsetup:\nname:\nresources:\nenvs:",
    "name: a\n---\nrun: x",
    "name: a\nexecution: serial\n---\nrun: x",
    "run: x\nenvs: {A: 1, B: on, C: 1.5, D: text}",
    "run: x\nsecrets: {A: 1, B: on, C: 1.5, D: text}",
    "run: x\nnum_nodes: 1",
    "run: x\nresources: {cpus: 2, memory: 16+, disk_size: 100GB, accelerators: 'A100:8', ports: 8080-8090}",
    "run: x\nresources: {cpus: 4.5, ports: [80, '90'], accelerators: {A100: 8}, use_spot: true, labels: {a: b}}",
    "run: x\nresources: {accelerators: [A100, {H100: 2}], autostop: {down: true}, priority: 5, max_hourly_cost: 2}",
    "run: x\nresources: {accelerators: {'A100:4', 'V100:2'}, infra: ssh/lab, autostop: true, image_id: {r: ami}}",
    "run: x\nresources: {any_of: [{cpus: 2}, {use_spot: true, job_recovery: none}], job_recovery: none}",
    "run: x\nresources: {ordered: [{cpus: 2}], job_recovery: {strategy: Failover, max_restarts_on_errors: none}}",
    "run: x\nresources: {job_recovery: {recover_on_exit_codes: [1, 2], restart_nodes: replace}}",
    "run: x\nresources: {job_recovery: {recover_on_exit_codes: 3, max_restarts_on_errors: 3}}",
]
INVALID = [
    "nmae: a\nrun: x",
    "envs: {A: b}",
    "run: 5",
    "run: [x]",
    "run: x\nname: a b",
    "run: x\nnum_nodes: 2",
    "run: x\nworkdir: .",
    "run: x\nenvs: [A]",
    "run: x\nenvs: {A: [b]}",
    "run: x\nenvs: {1A: b}",
    "run: x\nsecrets: [A]",
    "run: x\nsecrets: {A: [b]}",
    "run: x\nsecrets: {TOWLINE_A: b}",
    "run: x\nenvs: {TOWLINE_A: b}",
    "run: x\nresources: []",
    "run: x\nresources: {cpu: 2}",
    "run: x\nresources: {cpus: true}",
    "run: x\nresources: {cpus: 0}",
    "run: x\nresources: {ports: 70000}",
    "run: x\nresources: {use_spot: maybe}",
    "run: x\nresources: {labels: {a: 1}}",
    "run: x\nresources: {priority: 5000}",
    "run: x\nresources: {max_hourly_cost: -1}",
    "run: x\nresources: {autostop: {idle: 1}}",
    "run: x\nresources: {any_of: [{any_of: [{cpus: 1}]}]}",
    "run: x\nresources: {any_of: {cpus: 1}}",
    "run: x\nresources: {job_recovery: EAGER}",
    "run: x\nresources: {job_recovery: {max_restarts_on_errors: -1}}",
    "run: x\nresources: {job_recovery: {max_restarts_on_errors: many}}",
    "run: x\nresources: {job_recovery: {recover_on_exit_codes: [0]}}",
    "run: x\nresources: {job_recovery: {restart_nodes: keeep}}",
    "run: x\nresources: {job_recovery: {restarts: 1}}",
    "name: a\nexecution: parallel\n---\nrun: x",
]


def documents(text: str) -> list[Any]:
    return [each for each in yaml.safe_load_all(text) if each is not None]


def fits(text: str) -> bool:
    validator = Draft202012Validator(json_schema())
    return all(validator.is_valid(_as_json(each)) for each in documents(text))


def _as_json(value: Any) -> Any:
    """YAML's sets are JSON's mappings without values."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return dict.fromkeys(value) if isinstance(value, set) else value


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_fits(path: Path) -> None:
    assert fits(path.read_text())


@pytest.mark.parametrize("text", VALID)
def test_what_is_a_job_fits(text: str) -> None:
    load_job(text.encode(), "job.yaml", secrets=SecretSource(seal=lambda name, value: SealedSecret("QQ==", "0" * 16)))
    assert fits(text)


@pytest.mark.parametrize("text", INVALID)
def test_what_is_no_job_does_not_fit(text: str) -> None:
    with pytest.raises(InvalidJob):
        load_job(text.encode(), "job.yaml")
    assert not fits(text)
