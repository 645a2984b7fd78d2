"""The zoo: the models of the paper and their successors, built from configs with random weights."""
