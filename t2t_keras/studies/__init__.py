"""Studies: the tables of the paper, row by row, from trainings on data of one's own."""
