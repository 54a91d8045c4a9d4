"""Results, and what pictures and tables show, as labelled arrays: xarray trees with coordinates, units, provenance."""
