"""The pure core that every room may import: disk paths, what cannot exist, what a path promises."""
