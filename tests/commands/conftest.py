"""What the files of this folder share."""

from in_process import call_here as call_here  # a fixture
