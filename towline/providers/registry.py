"""The providers of this worker, by name, and the choice among their offers."""

from __future__ import annotations

from collections.abc import Sequence

from towline.errors import PrecheckFailed
from towline.providers.protocol import Offer, Provider, Request


class Providers:
    """What this worker can get nodes from."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self._by_name = {provider.name: provider for provider in providers}

    def all(self) -> list[Provider]:
        """Every provider, in the order of preference."""
        return list(self._by_name.values())

    def get(self, name: str) -> Provider:
        """The provider called `name`. Raises PrecheckFailed when this worker has none."""
        try:
            return self._by_name[name]
        except KeyError:
            usable = ", ".join(self._by_name)
            raise PrecheckFailed(f"provider {name} is not available in this version; usable: {usable}") from None

    def of(self, request: Request) -> Provider:
        """The provider that a request names; `local` when it names none."""
        return self.get((request.infra or "local").split("/")[0])

    async def choose(self, requests: Sequence[Request]) -> list[tuple[Request, Offer]]:
        """Every way to satisfy any of the requests, in their order, the best first within each. Raises PrecheckFailed
        with all the reasons when there is none."""
        found: list[tuple[Request, Offer]] = []
        refusals: list[str] = []
        for request in requests:
            try:
                found += [(request, offer) for offer in await self.of(request).offers(request)]
            except PrecheckFailed as error:
                refusals.append(str(error))
        affordable = [pair for pair in found if _affordable(*pair)]
        if not affordable:
            refusals += ["every offer costs more than max_hourly_cost"] if found else []
            raise PrecheckFailed("no offer fits: " + "; ".join(dict.fromkeys(refusals)))
        return affordable


def _affordable(request: Request, offer: Offer) -> bool:
    limit = request.max_hourly_cost
    return limit is None or (offer.hourly_cost is not None and offer.hourly_cost <= limit)
