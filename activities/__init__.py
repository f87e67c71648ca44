"""Activities: each one side effect, thin."""

from activities.job_activities import JobActivities

__all__ = ["JobActivities"]
