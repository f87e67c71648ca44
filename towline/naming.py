"""Names that are safe in paths, tags and shells, whatever a job is called."""

from __future__ import annotations

import hashlib
import re

_SAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_SLUG = 60


def job_key(job_id: str, first_run_id: str) -> str:
    """The name of one job in paths and tags: readable, at most 71 characters of `A-Za-z0-9_-`.

    The run is part of it because a job id may be used again once its job has ended, and neither the nodes nor the logs
    of the two may ever meet. It is the id of the job's *first* run, which a continue-as-new keeps.
    """
    digest = hashlib.sha256(f"{job_id}\0{first_run_id}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{slug(job_id)}-{digest[:10]}"


def slug(text: str) -> str:
    """What a person recognises of `text`, in 1 to 60 characters of `A-Za-z0-9_-`."""
    return _SAFE.sub("-", text)[:_LONGEST_SLUG].strip("-") or "job"
