"""Storage: what lies on disks, or depends on the machine."""
