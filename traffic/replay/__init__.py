"""Replay of recorded traces: packets chosen, assigned to users and servers, rewritten and timed, as NumPy arrays.

`parse` reads the headers, `table` assigns users and servers, `choose` selects packets, `timing` sets due times,
`oversize` cuts merged frames, `ports` keeps flows distinct, and `prepare` combines these. `build` makes the frames when
the addresses are known, `shift` those of further instances, `files` the files for the nodes.
"""
