"""What came of trainings: the rows of tables, votes, committees, and the records in results/."""
