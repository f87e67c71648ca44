"""A Towline worker, the same as `towline worker`: `python worker.py`."""

from towline.processes import leave
from towline.worker import main

if __name__ == "__main__":
    leave(main())
