"""Results of trainings: rows and tables, committees and their votes, the records in results/."""
