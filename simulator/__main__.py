"""`python -m simulator` is `batchlab`."""

from simulator.cli import main

if __name__ == "__main__":
    main()
