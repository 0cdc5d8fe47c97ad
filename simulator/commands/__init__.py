"""Commands that `simulator.cli` loads when they are asked for, one file each."""
