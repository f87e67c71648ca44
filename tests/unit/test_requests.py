"""From `resources` to what a provider is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from towline.providers.requests import requests
from towline.resources import Resources


@pytest.mark.parametrize(
    ("autostop", "lease_s"),
    [
        (None, None),
        (False, None),
        (-1, None),
        (True, 300),
        (10, 600),
        (0, 60),  # never so short that a node ends between two calls
        ({"idle_minutes": 30, "down": True}, 1800),
    ],
)
def test_autostop_shortens_the_lease(autostop: Any, lease_s: float | None) -> None:
    given = {} if autostop is None else {"autostop": autostop}
    assert [each.lease_s for each in requests(Resources.model_validate(given))] == [lease_s]
