"""`job_recovery` of the YAML: what is done when attempts end."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from towline.problems import kind_of, quote
from towline.section import Section

STRATEGIES = ("EAGER_NEXT_REGION", "FAILOVER", "NO_RECOVERY")
MOST_RESTARTS = 100_000
_RESTART_NODES = ("keep", "replace")


def _any_case(word: str) -> str:
    return "".join(f"[{char}{char.lower()}]" if char.isalpha() else char for char in word)


_NONE = "[Nn][Oo][Nn][Ee]"
_STRATEGY_SCHEMA = {
    "anyOf": [
        {"enum": [*STRATEGIES, "none"]},
        {"type": "string", "pattern": rf"^\s*({'|'.join(map(_any_case, STRATEGIES))}|{_NONE}|)\s*$"},
    ]
}


def _is_none(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() in ("", "none")


def _strategy(value: Any) -> Any:
    if _is_none(value):
        return STRATEGIES[0]
    if not isinstance(value, str) or value.strip().upper() not in STRATEGIES:
        raise ValueError(f"must be one of {', '.join(STRATEGIES)}, not {quote(value)}")
    return value.strip().upper()


def _budget(value: Any) -> Any:
    if _is_none(value):
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number from 0 to {MOST_RESTARTS}, not {_told(value)}")
    if not 0 <= value <= MOST_RESTARTS:
        raise ValueError(f"must be from 0 to {MOST_RESTARTS}, not {quote(value)}")
    return value


def _exit_codes(value: Any) -> Any:
    codes = value if isinstance(value, list) else [value]
    for code in codes:
        if isinstance(code, bool) or not isinstance(code, int) or not 1 <= code <= 255:
            raise ValueError(f"must be an exit code from 1 to 255, or a list of them, not {_told(code)}")
    return list(dict.fromkeys(codes))


def _restart_nodes(value: Any) -> Any:
    if value not in _RESTART_NODES:
        raise ValueError(f"must be keep or replace, not {quote(value)}")
    return value


def _told(value: Any) -> str:
    return quote(value) if isinstance(value, int | float) else kind_of(value)


Strategy = Literal["EAGER_NEXT_REGION", "FAILOVER", "NO_RECOVERY"]
StrategyInput = Annotated[str, WithJsonSchema(_STRATEGY_SCHEMA)]
_NoneInput = Annotated[str, Field(pattern=rf"^\s*({_NONE})?\s*$")]
_BudgetInput = Annotated[int, Field(ge=0, le=MOST_RESTARTS)]
_CodeInput = Annotated[int, Field(ge=1, le=255)]


class JobRecovery(Section):
    """What is done when attempts end: how infrastructure is replaced, and how often the user's code is restarted."""

    strategy: Annotated[Strategy, BeforeValidator(_strategy, json_schema_input_type=StrategyInput)] = (
        "EAGER_NEXT_REGION"
    )
    max_restarts_on_errors: Annotated[
        int, BeforeValidator(_budget, json_schema_input_type=_BudgetInput | _NoneInput)
    ] = 0
    recover_on_exit_codes: Annotated[
        list[int], BeforeValidator(_exit_codes, json_schema_input_type=_CodeInput | list[_CodeInput])
    ] = Field(default_factory=list)
    restart_nodes: Annotated[Literal["keep", "replace"], BeforeValidator(_restart_nodes)] = "keep"


def recovery_section(value: Any) -> Any:
    """A bare strategy name stands for a section with just that."""
    if isinstance(value, str):
        return {"strategy": value}
    if not isinstance(value, dict | JobRecovery):
        raise ValueError(f"must be the name of a strategy ({', '.join(STRATEGIES)}) or a mapping, not {kind_of(value)}")
    return value
