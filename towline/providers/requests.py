"""From `resources` of the YAML to what providers are asked for."""

from __future__ import annotations

from towline.providers.protocol import Request
from towline.resources import Resources


def requests(resources: Resources) -> list[Request]:
    """One request for each alternative, in the order of the input."""
    return [request for each in resources.alternatives() for request in _of_one(each)]


def _of_one(resources: Resources) -> list[Request]:
    """Several accelerators are alternatives too."""
    cpus, cpus_or_more = _amount(resources.cpus)
    memory, memory_or_more = _amount(resources.memory)
    disk, _ = _amount(resources.disk_size)
    choices: list[tuple[tuple[str, float], ...]] = [((name, count),) for name, count in resources.accelerators.items()]
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
            disk_gib=None if disk is None else int(disk),
            image_id=str(resources.image_id) if resources.image_id else None,
            ports=tuple(resources.ports),
            labels=tuple(resources.labels.items()),
            max_hourly_cost=resources.max_hourly_cost,
        )
        for accelerators in choices or [()]
    ]


def _infra(resources: Resources) -> str | None:
    provider = resources.infra or resources.cloud
    place = [each for each in (resources.region, resources.zone) if each]
    return "/".join([provider or "local", *place]) if provider or place else None


def _amount(text: str | None) -> tuple[float | None, bool]:
    if text is None:
        return None, True
    return float(text.rstrip("+")), text.endswith("+")
