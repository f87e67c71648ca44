"""`launch`, `validate` and `schema`: from a file to a job."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from towline.cli.session import command_line, configuration, connect, print_json, run, say, start_stack
from towline.cli.session import job_id as job_id_type
from towline.errors import UsageError
from towline.hiding import hidden

if TYPE_CHECKING:
    from towline.config import Config
    from towline.sealing import Sealer
    from towline.spec import JobSpec


def _job_options(command: Any) -> Any:
    for option in (
        click.option("-n", "--name", help="The job's name; default: the file's."),
        click.option(
            "--env", "envs", multiple=True, metavar="K[=V]", help="For all tasks; K alone takes the caller's."
        ),
        click.option("--env-file", type=click.Path(path_type=Path), help="Lines of K=V, for all tasks."),
        click.option(
            "--secret",
            "secrets",
            multiple=True,
            metavar="K[=V]",
            help="For all tasks, sealed; K alone takes the caller's.",
        ),
        click.option("--secret-file", type=click.Path(path_type=Path), help="Lines of K=V, for all tasks, sealed."),
        click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-d", "--detach", is_flag=True, help="Only submit; the job id goes to standard output.")
@click.option("--job-id", type=job_id_type, help="The job's id. The same id again attaches to the job that has it.")
@_job_options
def launch(
    file: Path,
    detach: bool,
    job_id: str | None,
    name: str | None,
    envs: tuple[str, ...],
    env_file: Path | None,
    secrets: tuple[str, ...],
    secret_file: Path | None,
    as_json: bool,
) -> int:
    """Validate FILE, submit it, follow the logs. The exit code is the job's."""
    from towline.sealing import Sealer

    config = configuration()
    if job_id is not None:
        from towline.client import check_job_id

        check_job_id(job_id)
    progress = _Progress()
    try:
        job = _load(
            file, name, _Given("--env", envs, env_file), _Given("--secret", secrets, secret_file), Sealer(config)
        )
        run(_check_offers(config, job))
        address = None if config.temporal_configured else start_stack(config).address
        return run(_launch(config, address, job, job_id, detach, as_json, progress))
    except (KeyboardInterrupt, click.Abort):
        say(progress.when_interrupted())
        raise


@dataclass
class _Progress:
    """How far a launch has come, for who interrupts it."""

    submitting: bool = False
    job_id: str | None = None

    def when_interrupted(self) -> str:
        """What became of the job."""
        if self.job_id is not None:
            return f"job {self.job_id} was submitted and goes on; `{command_line('logs', self.job_id)}` follows it"
        if self.submitting:
            return "interrupted in the middle of submitting: `towline queue` tells whether the job is there"
        return "nothing was submitted"


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@_job_options
def validate(
    file: Path,
    name: str | None,
    envs: tuple[str, ...],
    env_file: Path | None,
    secrets: tuple[str, ...],
    secret_file: Path | None,
    as_json: bool,
) -> int:
    """Check FILE without submitting it; --json prints the workflow's input."""
    from towline.sealing import Sealer

    config = configuration()
    seal = Sealer(config, only_checking=True)
    job = _load(file, name, _Given("--env", envs, env_file), _Given("--secret", secrets, secret_file), seal)
    run(_check_offers(config, job))
    if as_json:
        print_json(hidden(job.to_input()))
    else:
        from towline.cli.render import plan

        plan(job)
    return 0


@click.command()
def schema() -> int:
    """Print the JSON Schema of the YAML, for editors."""
    from towline.schema import json_schema

    print_json(json_schema())
    return 0


@dataclass(frozen=True)
class _Given:
    """What was given of one kind, `--env` or `--secret`: on the command line, and in a file."""

    option: str
    pairs: tuple[str, ...]
    file: Path | None

    def values(self) -> dict[str, str]:
        """The file's, with the command line's laid over it. No value is ever told."""
        values = _from_file(f"{self.option}-file", self.file) if self.file else {}
        for each in self.pairs:
            key, given, value = each.partition("=")
            if not given and key:
                if key not in os.environ:
                    raise UsageError(f"{self.option} {key}: has no value here; give {self.option} {key}=VALUE")
                value = os.environ[key]
            if not key:
                raise UsageError(f"{self.option}: write K=VALUE; the name is missing")
            values[key] = value
        return values


def _load(file: Path, name: str | None, envs: _Given, secrets: _Given, seal: Sealer) -> JobSpec:
    from towline.laying_over import SecretSource
    from towline.loading import load_job

    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    source = SecretSource(secrets.values(), os.environ, seal)
    job = load_job(data, str(file), name=name, envs=envs.values(), secrets=source)
    for each in sorted(seal.too_short_to_mask):
        say(f"secret {each} is too short to be masked in logs: do not print it")
    return job


def _from_file(option: str, path: Path) -> dict[str, str]:
    """The file's variables, read by python-dotenv; but what that would skip with a warning is refused."""
    from dotenv.parser import parse_stream

    from towline.task_envs import env_problems

    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from None
    values: dict[str, str] = {}
    for each in parse_stream(io.StringIO(text)):
        line = each.original.line
        if each.error or (each.key is not None and each.value is None):
            raise UsageError(f"{option} {path}:{line}: write NAME=VALUE")
        if each.key is not None and each.value is not None:
            for name, problem in env_problems({each.key: each.value}).items():
                raise UsageError(f"{option} {path}:{line}: {name}: {problem}")
            values[each.key] = each.value
    return values


async def _check_offers(config: Config, job: JobSpec) -> None:
    """Raises PrecheckFailed when a provider that can be judged from here has nothing that fits a task."""
    from towline.errors import InvalidJob, PrecheckFailed
    from towline.providers.requests import requests
    from towline.ssh.client import SshClient
    from towline.worker import providers_of

    if config.temporal_configured:
        return  # the workers are elsewhere, and so are their machines
    providers = providers_of(config, SshClient())
    problems = []
    for index, task in enumerate(job.tasks):
        try:
            await providers.choose(requests(task.resources))
        except PrecheckFailed as error:
            problems.append(f"task {index + 1}/{len(job.tasks)} {task.name}: {error}")
    if problems:
        raise InvalidJob(problems)


async def _launch(
    config: Config,
    address: str | None,
    job: JobSpec,
    job_id: str | None,
    detach: bool,
    as_json: bool,
    progress: _Progress,
) -> int:
    from towline.cli.follow import follow

    jobs = await connect(config, address)
    progress.submitting = True
    submission = await jobs.submit(job, job_id)
    progress.job_id = submission.job_id
    url = jobs.web_ui_url(submission.job_id, submission.run_id)
    if detach:
        if submission.attached:
            say(f"attached to job {submission.job_id}")
        if url:
            say(f"Web UI: {url}")
        if as_json:
            print_json({"job_id": submission.job_id, "attached": submission.attached, "web_ui_url": url})
        else:
            click.echo(submission.job_id)
        return 0
    said = "attached to" if submission.attached else "submitted"
    say(f"{said} job {submission.job_id}")
    if url:
        say(f"Web UI: {url}")
    back, end = command_line("logs", submission.job_id), command_line("cancel", submission.job_id)
    say(f"Ctrl-C leaves it running; `{back}` follows it again, `{end}` ends it")
    return await follow(config, jobs, submission.job_id, as_json=as_json)
