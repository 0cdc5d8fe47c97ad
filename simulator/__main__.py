"""`python -m simulator` is `batchlab`."""

from simulator.cli import main

main()
