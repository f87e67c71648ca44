"""From `resources` of the YAML to what providers are asked for."""

from __future__ import annotations

from typing import Any

from towline.amounts import accelerator_and_count
from towline.providers.protocol import Request
from towline.resources import Resources

_AUTOSTOP_DEFAULT_MINUTES = 5
_SHORTEST_LEASE_S = 60.0
Accelerators = tuple[tuple[str, float], ...]


def requests(resources: Resources) -> list[Request]:
    """One request for each alternative, in the order of the input."""
    return [request for each in resources.alternatives() for request in _of_one(each)]


def _of_one(resources: Resources) -> list[Request]:
    """Several accelerators are alternatives too."""
    cpus, cpus_or_more = _amount(resources.cpus)
    memory, memory_or_more = _amount(resources.memory)
    choices: list[Accelerators] = [(accelerator_and_count(each),) for each in resources.accelerators]
    return [
        Request(
            infra=_infra(resources),
            cpus=cpus,
            cpus_or_more=cpus_or_more,
            memory_gib=memory,
            memory_or_more=memory_or_more,
            accelerators=accelerators,
            instance_type=resources.instance_type,
            use_spot=resources.use_spot,
            disk_gib=None if resources.disk_size is None else int(resources.disk_size),
            image_id=_image(resources),
            ports=tuple(resources.ports),
            labels=tuple(resources.labels.items()),
            max_hourly_cost=resources.max_hourly_cost,
            lease_s=_lease_s(resources.autostop),
        )
        for accelerators in choices or [()]
    ]


def _infra(resources: Resources) -> str | None:
    if resources.infra or not resources.cloud:
        return resources.infra
    return "/".join(part for part in (resources.cloud, resources.region, resources.zone) if part)


def _image(resources: Resources) -> str | None:
    """The image; where each region has its own, that of the region asked for, else the first, never none."""
    image = resources.image_id
    if not isinstance(image, dict):
        return image
    return image.get(resources.region or "") or next(iter(image.values()), None)


def _lease_s(autostop: Any) -> float | None:
    """`autostop` shortens the lease: minutes without contact after which a node ends by itself. `true` is SkyPilot's
    five; a negative number or `false` asks for nothing."""
    minutes = autostop.get("idle_minutes", autostop.get("down")) if isinstance(autostop, dict) else autostop
    if minutes is None or minutes is False:
        return None
    minutes = _AUTOSTOP_DEFAULT_MINUTES if minutes is True else minutes
    return None if minutes < 0 else max(60.0 * minutes, _SHORTEST_LEASE_S)


def _amount(text: str | None) -> tuple[float | None, bool]:
    if text is None:
        return None, True
    return float(text.rstrip("+")), text.endswith("+")
