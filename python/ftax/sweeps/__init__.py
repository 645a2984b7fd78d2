"""Many cells: jobs in fresh processes, grids measured so that no cell is lost, and knees."""
