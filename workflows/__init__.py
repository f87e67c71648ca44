"""Workflows: sequence and time, nothing else."""
