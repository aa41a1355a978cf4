"""Python imports this when it starts, because this folder is on its path."""

import fake_cuda_driver

fake_cuda_driver.install()
