"""`python -m towline`: the same as `towline`."""

from towline.cli import main

if __name__ == "__main__":
    main()
