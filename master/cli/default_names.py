"""Names of paths that commands take if left out, as text for the entry point, which loads no pathlib."""

HOSTS = "hosts/lab-default.yml"
