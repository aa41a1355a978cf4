"""Python imports this when it starts, because this folder is on its path."""

import standin.launches

standin.launches.install()
