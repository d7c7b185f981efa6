"""Names of the paths that commands take if left out: the entry point, which loads no pathlib, needs them as text."""

HOSTS = "hosts/lab-default.yml"
RESULTS = "results"
