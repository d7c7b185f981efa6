"""`python -m pktswarm`: the command line."""

from pktswarm.master.cli.entry import main

if __name__ == "__main__":
    main()
