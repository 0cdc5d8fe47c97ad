"""Published measurements of serving engines, replayed as simulations and compared."""
