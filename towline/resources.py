"""What a task asks of a node: `resources` of the YAML, as validated models."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from towline import amounts
from towline.job_recovery import JobRecovery, StrategyInput, recovery_section
from towline.problems import Path, Problem, kind_of, quote
from towline.section import Section

USABLE = "usable: local, ssh/POOL"
ALTERNATIVES = ("any_of", "ordered")

_POOL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,62}")
_LONGEST_TEXT = 256
_AUTOSTOP_KEYS: dict[str, type] = {"idle_minutes": int, "down": bool}
_MOST_MINUTES = 10_000_000


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind_of(value)}; quote it")
    if not value.strip() or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise ValueError(f"must be 1 to {_LONGEST_TEXT} printable characters, not {quote(value)}")
    return value.strip()


def _infra(value: Any) -> Any:
    provider, *rest = [part.strip() for part in _text(value).split("/")]
    _provider(provider)
    fits = len(rest) <= 1 if provider.lower() == "ssh" else not rest
    if not fits or not all(_POOL.fullmatch(each) for each in rest):
        raise ValueError(f"must be local, ssh or ssh/POOL, not {quote(value)}")
    return "/".join([provider.lower(), *rest])


def _cloud(value: Any) -> Any:
    return _provider(_text(value))


def _provider(name: str) -> str:
    if name.lower() not in ("local", "ssh"):
        shown = name if _WORD.fullmatch(name) else quote(name)
        raise ValueError(f"provider {shown} is not available in this version; {USABLE}")
    return name.lower()


def _region(value: Any) -> Any:
    text = _text(value)
    if not _POOL.fullmatch(text):
        raise ValueError(f"must be letters, digits and _ . - only, not {quote(value)}")
    return text


def _image(value: Any) -> Any:
    images = value if isinstance(value, dict) else {"": value}
    for region, image in images.items():
        if not isinstance(image, str):
            raise ValueError(f"must be a string, or a mapping of regions to strings, not {kind_of(image)}")
        if _text(image).startswith("docker:"):
            raise ValueError("docker images are not supported in this version; name a machine image, or leave it out")
        if region and not _POOL.fullmatch(region):
            raise ValueError(f"{quote(region)} is no region")
    return {region: image.strip() for region, image in images.items()} if isinstance(value, dict) else _text(value)


def _labels(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping of names to strings, not {kind_of(value)}")
    for name, text in value.items():
        if not _LABEL.fullmatch(name):
            raise ValueError(f"{quote(name)} is no name of a label: letters, digits and _ . / - only, at most 63")
        if not isinstance(text, str):
            raise ValueError(f"must map {name} to a string, not {kind_of(text)}; quote it")
        if len(text) > _LONGEST_TEXT or not text.isprintable():
            raise ValueError(f"must map {name} to at most {_LONGEST_TEXT} printable characters")
    return value


def _priority(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {kind_of(value)}")
    if not -1000 <= value <= 1000:
        raise ValueError(f"must be from -1000 to 1000, not {quote(value)}")
    return value


def _autostop(value: Any) -> Any:
    settings: dict[str, Any] = (
        value if isinstance(value, dict) else {"down" if isinstance(value, bool) else "idle_minutes": value}
    )
    for key, setting in settings.items():
        if key not in _AUTOSTOP_KEYS:
            raise ValueError(f"{quote(key)} is no key of autostop; the keys are {', '.join(_AUTOSTOP_KEYS)}")
        if setting is not None and type(setting) is not _AUTOSTOP_KEYS[key]:
            raise ValueError("must be whole minutes, true, false, or {idle_minutes: 10, down: true}")
        if isinstance(setting, int) and not -1 <= setting <= _MOST_MINUTES:
            raise ValueError(f"must be from -1 (never) to {_MOST_MINUTES} minutes, not {quote(setting)}")
    return {key: said for key, said in value.items() if said is not None} if isinstance(value, dict) else value


_AmountInput = Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0)] | str
_AcceleratorsInput = str | dict[str, float | None] | list[str | dict[str, float | None]]
_PortInput = Annotated[int, Field(ge=1, le=65535)] | str
_CostInput = Annotated[float, Field(gt=0)]
_PriorityInput = Annotated[int, Field(ge=-1000, le=1000)]


class AutostopInput(Section):
    """`autostop` as a mapping."""

    idle_minutes: int | None = None
    down: bool | None = None


class Alternative(Section):
    """The wishes that may differ from one alternative of `any_of` or `ordered` to the next."""

    infra: Annotated[str | None, BeforeValidator(_infra, json_schema_input_type=str)] = None
    cloud: Annotated[str | None, BeforeValidator(_cloud, json_schema_input_type=str)] = None
    region: Annotated[str | None, BeforeValidator(_region, json_schema_input_type=str)] = None
    zone: Annotated[str | None, BeforeValidator(_region, json_schema_input_type=str)] = None
    cpus: Annotated[str | None, BeforeValidator(amounts.cpus, json_schema_input_type=_AmountInput)] = None
    memory: Annotated[str | None, BeforeValidator(amounts.memory, json_schema_input_type=_AmountInput)] = None
    accelerators: Annotated[
        list[str], BeforeValidator(amounts.accelerators, json_schema_input_type=_AcceleratorsInput)
    ] = Field(default_factory=list)
    instance_type: Annotated[str | None, BeforeValidator(_text, json_schema_input_type=str)] = None
    use_spot: bool = False
    disk_size: Annotated[str | None, BeforeValidator(amounts.disk_size, json_schema_input_type=_AmountInput)] = None
    image_id: Annotated[
        str | dict[str, str] | None, BeforeValidator(_image, json_schema_input_type=str | dict[str, str])
    ] = None
    ports: Annotated[
        list[str], BeforeValidator(amounts.ports, json_schema_input_type=_PortInput | list[_PortInput])
    ] = Field(default_factory=list)
    labels: Annotated[dict[str, str], BeforeValidator(_labels)] = Field(default_factory=dict)
    max_hourly_cost: Annotated[
        float | None, BeforeValidator(amounts.hourly_cost, json_schema_input_type=_CostInput)
    ] = None
    priority: Annotated[int | None, BeforeValidator(_priority, json_schema_input_type=_PriorityInput)] = None
    autostop: Annotated[
        int | bool | dict[str, int | bool] | None,
        BeforeValidator(_autostop, json_schema_input_type=int | bool | AutostopInput),
    ] = None
    job_recovery: Annotated[
        JobRecovery | None,
        BeforeValidator(recovery_section, json_schema_input_type=StrategyInput | JobRecovery),
    ] = None
    """Holds for the whole task, so it may only repeat here what the task's says."""


class Resources(Alternative):
    """`resources` of one task."""

    any_of: list[Alternative] | None = None
    ordered: list[Alternative] | None = None
    job_recovery: Annotated[
        JobRecovery, BeforeValidator(recovery_section, json_schema_input_type=StrategyInput | JobRecovery)
    ] = Field(default_factory=JobRecovery)

    @model_validator(mode="before")
    @classmethod
    def _with_recovery_of_alternatives(cls, value: Any) -> Any:
        """What all alternatives say alike holds for the task."""
        if not isinstance(value, dict) or value.get("job_recovery") is not None:
            return value
        said = [each.get("job_recovery") for _, each in _alternatives(value)]
        read = [_recovery(each) for each in said]
        alike = said and read[0] is not None and all(each == read[0] for each in read)
        return {**value, "job_recovery": said[0]} if alike else value

    def alternatives(self) -> list[Resources]:
        """Each way that is asked for, in the order of the input: `any_of` or `ordered` laid over the rest."""
        choices = self.any_of or self.ordered
        if not choices:
            return [self]
        base = self.model_dump(exclude={*ALTERNATIVES}, exclude_unset=True)
        overlays = [each.model_dump(exclude={"job_recovery"}, exclude_unset=True) for each in choices]
        return [Resources.model_validate({**base, **each}) for each in overlays]

    @property
    def gpus_per_node(self) -> int:
        """How many accelerators each node has, as asked for first."""
        first = self.alternatives()[0].accelerators[:1]
        return int(amounts.accelerator_and_count(first[0])[1]) if first else 0

    def to_input(self) -> dict[str, Any]:
        """As plain JSON, without what was not said."""
        return self.model_dump(mode="json", exclude_unset=True)


def resources_problems(path: Path, resources: dict[str, Any]) -> list[Problem]:
    """What no single field of raw `resources` can tell."""
    problems = []
    if all(resources.get(key) is not None for key in ALTERNATIVES):
        problems.append(Problem((*path, "ordered"), "cannot stand beside any_of; choose one"))
    for key in ALTERNATIVES:
        if resources.get(key) == []:
            problems.append(Problem((*path, key), "needs at least one alternative; add one, or remove the key"))
    return [*problems, *_place_problems(path, resources), *_recovery_problems(path, resources)]


def _alternatives(resources: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """The mappings under `any_of` and `ordered` of raw resources, each with the path to it."""
    return [
        ((key, index), each)
        for key in ALTERNATIVES
        if isinstance(resources.get(key), list)
        for index, each in enumerate(resources[key])
        if isinstance(each, dict)
    ]


def _place_problems(path: Path, resources: dict[str, Any]) -> list[Problem]:
    alternatives = _alternatives(resources)
    own = _place_problem(resources, resources)
    if own and not (alternatives and own[1] == _LACKS_CLOUD):  # an alternative may say the cloud
        return [Problem((*path, own[0]), own[1])]
    problems = []
    for place, each in alternatives:
        said = {key: item for key, item in each.items() if item is not None}
        found = _place_problem({**resources, **said}, said)
        if found:
            where = (*path, *place, found[0]) if found[0] in said else (*path, *place)
            problems.append(Problem(where, found[1]))
    return problems


_LACKS_CLOUD = f"needs cloud beside it; {USABLE}"


def _place_problem(wishes: dict[str, Any], said: dict[str, Any]) -> tuple[str, str] | None:
    """The key, and what is wrong where the wishes for a place do not fit together."""
    cloud = str(wishes.get("cloud") or "").strip().lower()
    parts = [key for key in ("region", "zone") if wishes.get(key) is not None]
    beside = [key for key in ("cloud", "region", "zone") if wishes.get(key) is not None]
    if wishes.get("infra") is not None and beside:
        key = next((each for each in (*beside, "infra") if each in said), beside[0])
        other = "infra" if key != "infra" else beside[0]
        return key, f"cannot stand beside {other}; write one of them, as in infra: ssh/POOL"
    if parts and not cloud:
        return parts[0], _LACKS_CLOUD
    if parts and cloud == "local":
        return parts[0], "means nothing for local nodes; remove it"
    if cloud == "ssh" and "zone" in parts:
        return "zone", "means nothing for ssh pools; remove it"
    return None


def _recovery_problems(path: Path, resources: dict[str, Any]) -> list[Problem]:
    alternatives = _alternatives(resources)
    own = resources.get("job_recovery")
    expected = own if own is not None else next((each.get("job_recovery") for _, each in alternatives), None)
    problems = []
    for place, each in alternatives:
        said = each.get("job_recovery")
        if said is None and (own is not None or expected is None):
            continue
        read = _recovery(said if said is not None else {})
        if read and _recovery(expected) not in (None, read):
            text = "holds for the whole task, so it must be equal in every alternative; write it once, in resources"
            problems.append(Problem((*path, *place, "job_recovery"), text))
    return problems


def _recovery(raw: Any) -> JobRecovery | None:
    """The section, or None where it is absent or wrong in itself."""
    try:
        return None if raw is None else JobRecovery.model_validate(recovery_section(raw))
    except (ValueError, ValidationError):
        return None
