"""A real Slurm on one Debian machine, for trying Seatrial and for its tests. Standard library only.

``cluster.up(SandboxConfig(...))`` starts it, ``Cluster.down()`` ends it; ``packages`` gets the software.
"""
