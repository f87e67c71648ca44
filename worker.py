"""A Towline worker, the same as `towline worker`: `python worker.py`."""

import sys

from towline.worker import main

if __name__ == "__main__":
    sys.exit(main())
