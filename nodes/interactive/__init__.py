"""The engine interactive: both ends play one trace."""
