"""One training and many: data, configurations, run files, jobs and the workers that do them."""
