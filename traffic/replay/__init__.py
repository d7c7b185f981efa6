"""A recorded trace compiled to what is sent: read, told apart by user and server, rewritten, timed. NumPy arrays.

`parse` finds the headers, `table` who is a user and who a server, `choose` what is sent, `timing` when, `oversize`
cuts merged frames again, `ports` keeps flows apart, `prepare` does all that; `build` makes the frames once addresses
are known, `shift` those of another instance, `files` what nodes get; `verify` looks at what came.
"""
