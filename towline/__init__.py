"""Towline: runs a list of tasks on cloud VMs and sees each one to its end."""

__version__ = "0.1.0"
