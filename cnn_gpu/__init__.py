"""On-line convolutional nets of any description (2011): nets as data, engines for CPU and GPU."""
