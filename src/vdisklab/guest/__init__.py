"""The virtual machine: its image, its life, its disks, its agent."""
