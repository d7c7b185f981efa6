"""`python -m pktswarm`: the command line."""

from pktswarm.master.cli import main

if __name__ == "__main__":
    main()
