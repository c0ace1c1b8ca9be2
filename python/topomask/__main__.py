"""`python -m topomask ...` is the command line program `topomask ...`."""

from topomask_command import main

if __name__ == "__main__":
    main()
