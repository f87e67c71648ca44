"""Everything encrypted: a server that can read nothing, and people with the key who can."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from temporalio.api.common.v1 import Payloads

from tests.e2e.test_secrets import start_worker
from tests.support.canary import CANARY, files_with_canary, has_canary
from tests.support.canary import told_by_the_server as told
from tests.support.system import ROOT, Server, System, until
from towline import boxes, keys
from towline.errors import UsageError
from towline.keys import SHARED
from towline.payload_codec import EncryptingCodec
from towline.status import ExitCode, Status

ORIGIN = "http://127.0.0.1:8233"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "codec.keys"
    keys.add(path, SHARED, boxes.new_shared_key)
    return path


async def test_the_server_can_read_nothing_of_a_job_and_who_has_the_key_sees_it_as_ever(
    idle: System, server: Server, key_file: Path, tmp_path: Path
) -> None:
    env = {"TOWLINE_CODEC_KEY_FILE": str(key_file)}
    worker = await start_worker(idle, "worker.py", **env)
    go = tmp_path / "go"
    file = tmp_path / "job.yaml"
    run = f"# {CANARY}\necho '{CANARY}'; echo 'a={CANARY}' >>$TOWLINE_OUTPUT; until [ -e {go} ]; do sleep 0.05; done"
    file.write_text(json.dumps({"run": run, "envs": {"A": CANARY}}) + "\n---\n" + json.dumps({"run": "exit 3"}))
    launched = await idle.cli("launch", "-d", str(file), env=env)
    assert launched.code == 0, launched.err
    job_id = launched.out.decode().strip()

    async def streamed() -> bool:
        return CANARY.encode() in await idle.log(job_id)

    await until(streamed, "the first task runs")
    assert not has_canary(await told(idle.client, job_id))
    live = await idle.cli("status", "--json", job_id, env=env)
    assert live.json["tasks"][0]["attempts"][0]["status"] == "RUNNING", live
    go.touch()
    followed = await idle.cli("logs", job_id, env=env)
    assert followed.code == ExitCode.FAILED
    ended = await idle.cli("status", "--json", job_id, env=env)
    assert ended.json["status"] == Status.FAILED
    assert "exit code 3" in ended.json["reason"]
    assert ended.json["tasks"][0]["outputs"] == {"a": CANARY}
    rows = (await idle.cli("queue", "--json", env=env)).json
    assert [row["reason"] for row in rows if row["job_id"] == job_id] == [ended.json["reason"]]
    everything = await told(idle.client, job_id)
    assert not has_canary(everything)
    assert b"exit code 3" not in everything
    assert files_with_canary(server._directory) == []
    assert not has_canary(worker.log.read_bytes())
    blind = await idle.cli("status", job_id)
    assert blind.code == ExitCode.USAGE
    assert "add it to TOWLINE_CODEC_KEY_FILE" in blind.err
    (row,) = [row for row in (await idle.cli("queue", "--json")).json if row["job_id"] == job_id]
    assert row["status"] == Status.FAILED
    assert "add it to TOWLINE_CODEC_KEY_FILE" in row["reason"]


async def test_a_job_that_began_unencrypted_goes_on_with_a_worker_that_encrypts(
    idle: System, key_file: Path, tmp_path: Path
) -> None:
    plain = await start_worker(idle)
    here, go = tmp_path / "here", tmp_path / "go"
    job_id = await idle.submit({"run": f"touch {here}; until [ -e {go} ]; do sleep 0.05; done"})
    await until(here.exists, "the task runs")
    plain.process.kill()
    await start_worker(idle, TOWLINE_CODEC_KEY_FILE=str(key_file))
    go.touch()
    env = {"TOWLINE_CODEC_KEY_FILE": str(key_file)}
    followed = await idle.cli("logs", job_id, env=env)
    assert followed.code == 0, followed.err


async def test_the_codec_decrypts_with_any_key_it_knows_and_encrypts_with_the_first(tmp_path: Path) -> None:
    (old,), path = keys.read(_new(tmp_path / "a"), SHARED, "a"), tmp_path / "b"
    (new,) = keys.read(_new(path), SHARED, "b")
    payload = json_format.ParseDict(_payload(b'"text"'), Payloads()).payloads[0]
    (before,) = await EncryptingCodec([old]).encode([payload])
    both = EncryptingCodec([new, old])
    (after,) = await both.encode([payload])
    assert after.metadata["encryption-key-id"].decode() == new.id
    assert await both.decode([before, after, payload]) == [payload] * 3
    with pytest.raises(UsageError, match=f"codec key {old.id}, which is not here"):
        await EncryptingCodec([new]).decode([before])
    before.data = before.data[:-1] + b"x"
    with pytest.raises(UsageError, match="is damaged"):
        await both.decode([before])


def _new(path: Path) -> Path:
    keys.add(path, SHARED, boxes.new_shared_key)
    return path


def _payload(data: bytes) -> dict[str, Any]:
    encoding = base64.b64encode(b"json/plain").decode()
    return {"payloads": [{"metadata": {"encoding": encoding}, "data": base64.b64encode(data).decode()}]}


async def test_the_codec_server_speaks_temporals_protocol_to_the_web_ui_and_to_no_other_page(
    key_file: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "towline", "codec-server", "--port", "0", "--origin", ORIGIN]
    env = {"PATH": "/usr/bin:/bin", "TOWLINE_HOME": str(tmp_path), "TOWLINE_CODEC_KEY_FILE": str(key_file)}
    process = await asyncio.create_subprocess_exec(*command, env=env, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr
        address = (await process.stderr.readline()).decode().split()[-1]
        ask = lambda *arguments, **more: asyncio.to_thread(_ask, address, *arguments, **more)  # noqa: E731
        status, headers, encoded = await ask("/encode", json.dumps(_payload(CANARY.encode())).encode(), origin=ORIGIN)
        assert status == 200
        assert headers["Access-Control-Allow-Origin"] == ORIGIN
        assert not has_canary(base64.b64decode(json.loads(encoded)["payloads"][0]["data"]))
        assert json.loads((await ask("/decode", encoded, origin=ORIGIN))[2]) == _payload(CANARY.encode())
        assert json.loads((await ask("/decode", encoded))[2]) == _payload(CANARY.encode())
        status, headers, _ = await ask("/decode", None, origin=ORIGIN, method="OPTIONS")
        assert status == 204
        assert "x-namespace" in headers["Access-Control-Allow-Headers"]
        assert headers["Access-Control-Allow-Origin"] == ORIGIN
        status, headers, said = await ask("/decode", encoded, origin="http://evil.example")
        assert status == 403
        assert "Access-Control-Allow-Origin" not in headers
        assert not has_canary(said)
        assert (await ask("/decode", b"no json"))[0] == 400
        assert (await ask("/other", b""))[0] == 404
    finally:
        process.terminate()
        await process.wait()


def _ask(
    address: str, path: str, body: bytes | None, *, origin: str = "", method: str = "POST"
) -> tuple[int, dict[str, str], bytes]:
    headers = {"Content-Type": "application/json", **({"Origin": origin} if origin else {})}
    request = urllib.request.Request(address + path, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()
