"""What a task asks of a node: `resources` of the YAML, as validated models."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from towline.problems import kind_of, quote

STRATEGIES = ("EAGER_NEXT_REGION", "FAILOVER", "NO_RECOVERY")
USABLE_PROVIDERS = ("local", "ssh")
MOST_RESTARTS = 100_000

_AMOUNT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(\+?)\s*$")
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:g|gb|gib)?\s*(\+?)\s*$", re.IGNORECASE)
_ACCELERATOR = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9_.-]*)\s*(?::\s*(\d+(?:\.\d+)?))?\s*$")
_PORTS = re.compile(r"^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$")
_LABEL = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}$")


class Model(BaseModel):
    """A mapping of the YAML: no other keys, no silent conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _amount(pattern: re.Pattern[str], example: str) -> Any:
    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | str | None):
            raise ValueError(f"must be a number or a string such as {example}, not {kind_of(value)}")
        if value is None:
            return None
        found = pattern.match(str(value))
        if not found or float(found[1]) <= 0:
            raise ValueError(f"must be a positive number or a string such as {example}, not {quote(value)}")
        return f"{float(found[1]):g}{found[2]}"

    return BeforeValidator(check)


def _accelerators(value: Any) -> Any:
    """`A100`, `A100:8`, `{A100: 8}`, or a list of these: as a mapping of name to count; several are alternatives."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return {name: _count(name, count) for name, count in value.items()}
    items = value if isinstance(value, list | set | tuple) else [value]
    found: dict[str, float] = {}
    for item in items:
        match = _ACCELERATOR.match(item) if isinstance(item, str) else None
        if not match:
            raise ValueError(f"must be such as A100:8 or {{A100: 8}}, not {quote(item)}")
        found[match[1]] = _count(match[1], float(match[2] or 1))
    return found


def _count(name: Any, count: Any) -> float:
    if not isinstance(name, str) or isinstance(count, bool) or not isinstance(count, int | float | None):
        raise ValueError("must map names of accelerators to how many: {A100: 8}")
    count = 1 if count is None else count
    if count <= 0:
        raise ValueError(f"needs a positive number of {name}")
    return float(count)


def _ports(value: Any) -> Any:
    if value is None:
        return []
    shown = []
    for item in value if isinstance(value, list | tuple) else [value]:
        match = None if isinstance(item, bool) or not isinstance(item, int | str) else _PORTS.match(str(item))
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= low <= high <= 65535:
            raise ValueError(f"must be a port from 1 to 65535, a range such as 8080-8090, or a list, not {quote(item)}")
        shown.append(str(low) if low == high else f"{low}-{high}")
    return shown


def _labels(value: Any) -> Any:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping of names to strings, not {kind_of(value)}")
    for name, text in value.items():
        if not isinstance(name, str) or not _LABEL.match(name):
            raise ValueError(f"has a name that is no label: {quote(name)}")
        if not isinstance(text, str):
            raise ValueError(f"must map {name} to a string, not {kind_of(text)}; quote it")
    return value


def _infra(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"must be a string such as local or ssh/POOL, not {kind_of(value)}")
    provider, *rest = value.strip().split("/")
    usable = f"usable: {', '.join(USABLE_PROVIDERS)} (ssh/POOL)"
    if provider.lower() not in USABLE_PROVIDERS:
        raise ValueError(f"provider {quote(provider)} is not available in this version; {usable}")
    if (provider.lower() == "local" and rest) or len(rest) > 1 or not all(rest):
        raise ValueError(f"must be local, ssh or ssh/POOL, not {quote(value)}")
    return "/".join([provider.lower(), *rest])


def _strategy(value: Any) -> Any:
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "none")):
        return STRATEGIES[0]
    if not isinstance(value, str) or value.strip().upper() not in STRATEGIES:
        raise ValueError(f"must be one of {', '.join(STRATEGIES)}, not {quote(value)}")
    return value.strip().upper()


def _budget(value: Any) -> Any:
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "none")):
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number from 0 on, not {kind_of(value)}")
    if not 0 <= value <= MOST_RESTARTS:
        raise ValueError(f"must be from 0 to {MOST_RESTARTS}")
    return value


def _exit_codes(value: Any) -> Any:
    if value is None:
        return []
    codes = value if isinstance(value, list | tuple) else [value]
    for code in codes:
        if isinstance(code, bool) or not isinstance(code, int) or not 1 <= code <= 255:
            raise ValueError(f"must be an exit code from 1 to 255, or a list of them, not {quote(code)}")
    return list(codes)


def _recovery(value: Any) -> Any:
    if value is None:
        return {}
    return {"strategy": value} if isinstance(value, str) else value


def _cost(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
        raise ValueError(f"must be a positive number of US dollars per hour, not {kind_of(value)}")
    return None if value is None else float(value)


def _image(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("docker:"):
        raise ValueError("docker images are not supported in this version")
    return value


class JobRecovery(Model):
    """What is done when attempts end."""

    strategy: Annotated[Literal["EAGER_NEXT_REGION", "FAILOVER", "NO_RECOVERY"], BeforeValidator(_strategy)] = (
        "EAGER_NEXT_REGION"
    )
    max_restarts_on_errors: Annotated[int, BeforeValidator(_budget)] = 0
    recover_on_exit_codes: Annotated[list[int], BeforeValidator(_exit_codes)] = Field(default_factory=list)
    restart_nodes: Literal["keep", "replace"] = "keep"


class Alternative(Model):
    """The wishes that may differ from one alternative of `any_of` or `ordered` to the next."""

    infra: Annotated[str | None, BeforeValidator(_infra)] = None
    cloud: Annotated[str | None, BeforeValidator(_infra)] = None
    region: str | None = None
    zone: str | None = None
    cpus: Annotated[str | None, _amount(_AMOUNT, "'4+'")] = None
    memory: Annotated[str | None, _amount(_SIZE, "'16+' (GB)")] = None
    accelerators: Annotated[dict[str, float], BeforeValidator(_accelerators)] = Field(default_factory=dict)
    instance_type: str | None = None
    use_spot: bool = False
    disk_size: Annotated[str | None, _amount(_SIZE, "'100GB'")] = None
    image_id: Annotated[str | dict[str, str] | None, BeforeValidator(_image)] = None
    ports: Annotated[list[str], BeforeValidator(_ports)] = Field(default_factory=list)
    labels: Annotated[dict[str, str], BeforeValidator(_labels)] = Field(default_factory=dict)
    max_hourly_cost: Annotated[float | None, BeforeValidator(_cost)] = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    autostop: int | bool | dict[str, Any] | None = None


class Resources(Alternative):
    """`resources` of one task."""

    any_of: list[Alternative] | None = None
    ordered: list[Alternative] | None = None
    job_recovery: Annotated[JobRecovery, BeforeValidator(_recovery)] = Field(default_factory=JobRecovery)

    def alternatives(self) -> list[Resources]:
        """Each way that is asked for, in the order of the input: `any_of` or `ordered` laid over the rest."""
        base = self.model_dump(exclude={"any_of", "ordered"}, exclude_unset=True)
        choices = self.any_of or self.ordered
        if not choices:
            return [self]
        return [Resources.model_validate({**base, **each.model_dump(exclude_unset=True)}) for each in choices]

    @property
    def gpus_per_node(self) -> int:
        """How many accelerators each node has, as asked for first."""
        return int(next(iter(self.accelerators.values()), 0))

    def to_input(self) -> dict[str, Any]:
        """As plain JSON, without what was not said."""
        return self.model_dump(mode="json", exclude_unset=True)
