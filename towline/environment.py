"""The environment of a task's commands: the user's envs, and what Towline and SkyPilot programs expect to find."""

from __future__ import annotations

from towline.contract import RunTaskInput


def task_environment(request: RunTaskInput, attempt: int, restarts: int) -> dict[str, str]:
    """Every variable that `setup` and `run` of this attempt see beside the node's own. Job and task ids are the same
    in every attempt."""
    node = request.nodes[0]
    addresses = "\n".join(each.host for each in request.nodes)
    task_id = f"{request.job.job_id}-{request.task_index}"
    return {
        **request.envs,
        **request.earlier_outputs,
        "TOWLINE_JOB_ID": request.job.job_id,
        "TOWLINE_TASK_ID": task_id,
        "TOWLINE_TASK_NAME": request.task_name,
        "TOWLINE_TASK_INDEX": str(request.task_index),
        "TOWLINE_ATTEMPT": str(attempt),
        "TOWLINE_RESTARTS": str(restarts),
        "TOWLINE_RECOVERIES": str(request.recoveries),
        "TOWLINE_NODE_RANK": str(node.rank),
        "TOWLINE_NUM_NODES": str(len(request.nodes)),
        "TOWLINE_NODE_IPS": addresses,
        "SKYPILOT_TASK_ID": task_id,
        "SKYPILOT_NODE_RANK": str(node.rank),
        "SKYPILOT_NODE_IPS": addresses,
        "SKYPILOT_NUM_NODES": str(len(request.nodes)),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(request.num_gpus_per_node),
    }
