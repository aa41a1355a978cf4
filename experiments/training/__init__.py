"""One training and many: configurations, run files, jobs and the workers that do them."""
