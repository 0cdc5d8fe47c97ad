"""Many runs: grids of parameters, where they run, where they are stored, how they are compared."""
