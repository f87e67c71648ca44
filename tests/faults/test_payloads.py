"""Whatever a task prints, exits with or is called, no message of Towline's grows with it."""

from __future__ import annotations

import pytest

from tests.support.system import System
from towline.status import Status

LARGEST_EVENT = 64 * 1024
NASTY = {
    "five megabytes of stderr": "head -c 5000000 /dev/zero | tr '\\0' e >&2; exit 3",
    "a megabyte of NUL": "head -c 1000000 /dev/zero; exit 3",
    "lone surrogates": r"""python3 -c 'import os; os.write(1, b"\xed\xa0\x80\xed\xb0\x80" * 9999)'; exit 3""",
    "control characters, six bytes each in JSON": r"""python3 -c 'print("\x01" * 300_000)'; exit 3""",
    "characters of four bytes": """python3 -c 'print("𝄞" * 300_000)'; exit 3""",
}


@pytest.mark.parametrize("name", NASTY)
async def test_texts_are_cut_by_their_encoded_size_and_nothing_loops(system: System, name: str) -> None:
    task = {"run": NASTY[name], "resources": {"job_recovery": {"max_restarts_on_errors": 1}}}
    job_id = await system.submit(task)
    document = await system.ended(job_id)
    ended = document["tasks"][0]
    assert (document["status"], ended["exit_code"], ended["restarts"]) == (Status.FAILED, 3, 1)
    assert len(ended["attempts"]) == 2
    history = await system.client.get_workflow_handle(job_id).fetch_history()
    assert max(event.ByteSize() for event in history.events) < LARGEST_EVENT


async def test_a_heartbeat_stays_small_while_such_bytes_stream(system: System) -> None:
    run = r"""python3 -c 'print("\x01" * 300_000, flush=True); import time; time.sleep(600)'"""
    job_id = await system.submit({"run": run})

    async def streamed() -> bool:
        return len(await system.log(job_id)) > 300_000

    from tests.support.system import until

    await until(streamed, "the bytes are in the log store")
    described = await system.client.get_workflow_handle(job_id).describe()
    for pending in described.raw_description.pending_activities:
        assert pending.heartbeat_details.ByteSize() < 10 * 1024
    await system.jobs.cancel(job_id)
    assert (await system.ended(job_id))["status"] == Status.CANCELLED
