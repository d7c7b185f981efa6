"""The lab's switches in XDP."""
