"""Values that a task hands on to later ones."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.canary import CANARY, has_canary
from tests.support.canary import told_by_the_server as told
from tests.support.system import System, until
from towline.sealing import Sealer, ensure_key_pair
from towline.status import Status


async def test_the_last_successful_attempts_values_are_in_later_tasks_and_in_the_status(system: System) -> None:
    ensure_key_pair(system.config)
    sealed = Sealer(system.config)("TOKEN", CANARY)
    run = 'echo "loss=$TOWLINE_ATTEMPT" >>$TOWLINE_OUTPUT; echo "attempt-$TOWLINE_ATTEMPT=x" >>"$TOWLINE_OUTPUT"'
    wrong = '; printf "no line\\nt=$TOKEN\\n" >>$TOWLINE_OUTPUT; [ $TOWLINE_ATTEMPT = 2 ]'
    recovery = {"job_recovery": {"max_restarts_on_errors": 1}}
    secrets = {"TOKEN": {"sealed": sealed.sealed, "key": sealed.key}}
    first = {"name": "train.v1", "run": run + wrong, "resources": recovery, "secrets": secrets}
    second = {"name": "two", "setup": "echo where=/data >>$TOWLINE_OUTPUT"}
    third = {"name": "three", "run": "env | grep ^TOWLINE_OUTPUT_ | sort"}
    job_id = await system.submit(first, second, third)
    document = await system.ended(job_id)
    assert document["status"] == Status.SUCCEEDED, document
    outputs = [task["outputs"] for task in document["tasks"]]
    assert outputs == [{"loss": "2", "attempt-2": "x"}, {"where": "/data"}, {}]
    assert document["tasks"][0]["attempts"][1]["reason"] == (
        "exit code 0; line 3 of $TOWLINE_OUTPUT is not KEY=VALUE; line 4 of $TOWLINE_OUTPUT holds a secret"
    )
    assert await system.log(job_id, 2) == (
        b"TOWLINE_OUTPUT_TRAIN_V1_ATTEMPT_2=x\nTOWLINE_OUTPUT_TRAIN_V1_LOSS=2\nTOWLINE_OUTPUT_TWO_WHERE=/data\n"
    )
    shown = await system.cli("status", job_id)
    assert b"output loss=2" in shown.out
    assert (await system.cli("status", "--json", job_id)).json["tasks"][0]["outputs"] == outputs[0]
    assert not has_canary(await told(system.client, job_id))


async def test_they_survive_the_death_of_the_worker_that_saw_the_task_end(system: System, tmp_path: Path) -> None:
    here, go = tmp_path / "here", tmp_path / "go"
    run = f"echo a=1 >>$TOWLINE_OUTPUT; touch {here}; until [ -e {go} ]; do sleep 0.05; done"
    job_id = await system.submit({"name": "one", "run": run}, {"name": "two", "run": "echo $TOWLINE_OUTPUT_ONE_A"})
    await until(here.exists, "the first task runs")
    system.workers[-1].send(signal.SIGKILL)
    go.touch()
    await system.worker()
    document = await system.ended(job_id)
    assert document["tasks"][0]["outputs"] == {"a": "1"}
    assert len(document["tasks"][0]["attempts"]) == 1
    assert await system.log(job_id, 1) == b"1\n"


async def test_too_much_is_not_kept_and_the_task_still_succeeds(system: System) -> None:
    document = await system.run({"run": "head -c 20000 /dev/zero | tr '\\0' x >$TOWLINE_OUTPUT"})
    (task,) = document["tasks"]
    assert (task["status"], task["outputs"]) == (Status.SUCCEEDED, {})
    assert task["attempts"][0]["reason"].startswith("exit code 0; its outputs are not kept: $TOWLINE_OUTPUT is larger")
