"""SSH: the only door to asyncssh. `client` reaches nodes, `server` is what a local node runs."""

import warnings

with warnings.catch_warnings():  # of what asyncssh imports, and Towline never uses: a user can do nothing about it
    warnings.filterwarnings("ignore", message=".* is deprecated", module="asyncssh")
    import asyncssh

__all__ = ["asyncssh"]
